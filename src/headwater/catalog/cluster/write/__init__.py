"""Writing to a cluster catalog: the lease of a set, its batches, leases of roles."""
