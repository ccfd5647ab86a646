"""Tools for working on the project: environment, demo, generated pages."""
