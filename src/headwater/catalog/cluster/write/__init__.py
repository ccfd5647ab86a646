"""Writing to a cluster catalog: the lease of a set, its batches, claims on roles."""
