"""Where published documents lie, and the one way a SQLite file is opened."""
