"""Requests for single resources: attempts, verification, results, and what is kept of broken downloads."""
