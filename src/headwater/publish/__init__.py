"""From the catalog to documents, refreshing only what changed."""
