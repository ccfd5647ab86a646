"""Links that are added when documents are rendered."""
