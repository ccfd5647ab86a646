"""Which sets a source offers, and where they lie: discovery, the registry, selection, sets that have moved."""
