"""Storage: a folder of documents, a SQLite database, a search cluster."""
