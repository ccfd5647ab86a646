"""Change Dumps: packages with the octets of all changes, planned and made beside the publications of their set."""
