"""The source's state: one interface, its contract suite, its backends."""
