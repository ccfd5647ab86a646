"""Patches in a destination (DST-S1)."""
