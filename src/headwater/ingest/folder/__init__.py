"""A folder of files as a set: what is there is compared with what the catalog says."""
