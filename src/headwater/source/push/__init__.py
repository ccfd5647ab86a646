"""Sets that are filled by push: their state, what publishes them, and what follows their indexes."""
