"""Sets that are fed: announced records, each taken exactly once, and what is remembered of them."""
