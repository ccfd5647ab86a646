"""The destination folder: its lock and state, its files and their names, and recovery after a crash."""
