"""RDF datasets: canonical N-Quads files of any size, and N-Quads Unified Diff between them."""
