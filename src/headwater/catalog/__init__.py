"""The state of a source: one interface, its backends, dump and restore. `tests/contract/catalog` is its suite."""
