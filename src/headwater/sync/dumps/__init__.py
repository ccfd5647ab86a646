"""Dumps read as lists: what a source without a Resource List or a Change List has, by the manifests of its packages."""
