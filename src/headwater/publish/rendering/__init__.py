"""Rendering of documents: their content, and a pool of processes that render pages of Resource Lists."""
