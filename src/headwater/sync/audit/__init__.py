"""Proof of whether a copy is in sync."""
