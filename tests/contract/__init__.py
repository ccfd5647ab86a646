"""Suites of tests that an implementation of an interface has to pass; the author of another one copies them."""
