"""Keeps copies of web collections exactly in step with their source (ResourceSync, ANSI/NISO Z39.99)."""

__version__ = "0.1.0"
