"""The sets of a source that publish what a destination has copied."""
