"""Archives of a source (Archives 0.9.1): read, and asked which of their documents tell of which time."""
