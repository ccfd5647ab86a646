"""Copies of the past: what a set was at a moment, by lists, archives and mementos, and its octets of then (`--at`)."""
