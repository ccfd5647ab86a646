"""Real search engines for tests, without docker: `python -m tools.engines` (docs/contribute/engines.md)."""
