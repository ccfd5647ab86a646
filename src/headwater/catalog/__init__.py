"""The source's state: one interface, its backends, dump and restore. `headwater.testing` has its contract suite."""
