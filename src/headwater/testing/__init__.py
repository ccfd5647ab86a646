"""Public test suites by which an implementation of an interface proves that it keeps what the interface promises."""
