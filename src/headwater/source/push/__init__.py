"""Sets that are filled by push: their work queue and the scheduler that publishes them in a few threads."""
