"""Sets that are filled by push: announced records, each taken exactly once, and what is remembered of them."""
