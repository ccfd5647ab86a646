"""The HTTP server of a hub."""
