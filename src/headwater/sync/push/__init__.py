"""Payloads of notifications, applied to a copy as what a Change List says."""
