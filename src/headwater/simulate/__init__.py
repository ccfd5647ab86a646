"""A source that changes as told: synthetic resources of any number, true hashes, time that runs as fast as wished."""
