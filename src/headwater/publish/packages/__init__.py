"""Packages with the octets of resources and changes: Resource Dumps, Change Dumps, and packages on demand."""
