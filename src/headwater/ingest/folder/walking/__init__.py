"""The walk over a folder: its files in the order of their URIs, which of them belong to the set."""
