"""A pool of worker processes: programs of their own, which are given jobs by pipes."""
