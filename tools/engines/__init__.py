"""Real search engines for tests, without docker: `python -m tools.engines` (tests/engines.md)."""
