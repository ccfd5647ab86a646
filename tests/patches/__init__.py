"""Patches: made, applied, and refused."""
