"""Alternates: which representation of a resource is copied, and how lists are read as lists of those (DST-S3)."""
