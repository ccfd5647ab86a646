"""Responses for resources: their files, their headers and look-ups in the catalog."""
