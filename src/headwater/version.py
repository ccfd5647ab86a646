"""The version, in one place: packaging, the program and its requests all read it here."""

__version__ = "0.1.0"
