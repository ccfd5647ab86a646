"""What tests of several folders use; the page tests/README.md says which part is for what."""
