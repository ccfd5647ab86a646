"""Tests of the service that follows many sources."""
