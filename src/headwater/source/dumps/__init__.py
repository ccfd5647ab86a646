"""Change Dumps of a source at work: when packages are made, and when versions that nothing needs are removed."""
