"""The HTTP endpoints of sets that are filled by push."""
