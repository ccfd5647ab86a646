"""Which sets a source offers: discovery, the registry of remembered sets, selection, and sets that have moved."""
