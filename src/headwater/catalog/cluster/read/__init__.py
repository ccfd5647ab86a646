"""Reading from a cluster catalog: one committed state of resources, changes and rows, and the heads that are known."""
