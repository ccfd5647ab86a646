"""Commands of a source: what publishes, serves, is told of changes, and keeps a catalog."""
