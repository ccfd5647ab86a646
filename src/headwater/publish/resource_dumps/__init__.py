"""Resource Dumps: packages with the octets of all resources, page by page, planned and made beside publications."""
