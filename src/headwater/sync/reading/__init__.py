"""The documents of a source, found and read: what it offers, what it lists, what has changed."""
