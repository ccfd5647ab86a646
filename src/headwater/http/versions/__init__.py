"""Past states of resources over HTTP, as Memento asks (RFC 7089): mementos, TimeGates and TimeMaps."""
