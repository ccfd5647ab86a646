"""Lines of N-Quads: read, recognised or parsed, sorted, their blank nodes named."""
