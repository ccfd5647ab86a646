"""The scheduler of a source, and the queue of its short jobs."""
