"""The static tree: a link or a copy of every file of a set."""
