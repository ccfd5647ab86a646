"""The HTTP face of a source."""
