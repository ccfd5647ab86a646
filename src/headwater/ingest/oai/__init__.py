"""OAI-PMH harvested into a set: answers of a repository, how far its lists were read, and the harvester."""
