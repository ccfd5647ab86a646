"""DSpace 7 and later: a repository is read by its REST API into a set."""
