"""A harvester's index: its URL, its shards in order, how far each has been read, and its comparison with the set."""
