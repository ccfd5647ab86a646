"""Archives of a set: past documents that stay, within bounds (Archives 0.9.1)."""
