"""The audit of a copy: every file by its hash against what the source lists."""
