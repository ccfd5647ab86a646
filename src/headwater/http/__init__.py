"""The HTTP server of a source: routes, responses, caches, the ingest endpoint and the server process."""
