"""A folder of files as a set: scans compare the folder with the catalog, and record what differs."""
