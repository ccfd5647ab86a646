"""Publishing: documents are rendered from the catalog, and only those that have changed are written."""
