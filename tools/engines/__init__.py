"""Real search engines for tests and benchmarks, without docker: `python -m tools.engines` (docs/contribute/engines.md)."""
