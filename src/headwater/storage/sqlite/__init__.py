"""What a SQLite database is made of: its file, its transactions, how a busy one is waited for, its copy."""
