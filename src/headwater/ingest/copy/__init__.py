"""Ingest of a copy: what a destination has placed becomes resources of a source, with where each came from."""
