"""The version store of a source: the octets of resources as they were, found by their SHA-256."""
