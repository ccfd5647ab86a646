"""Real search engines for tests, benchmarks and CI, without docker: `python -m tools.engines` (docs/engines.md)."""
