"""Reads files once for all digests: a pool of worker processes, and the worker."""
