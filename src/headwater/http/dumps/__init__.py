"""Packages made on demand: ZIP files with just the resources that a destination asks for."""
