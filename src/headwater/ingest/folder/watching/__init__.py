"""File system notifications: hints on where a folder has changed."""
