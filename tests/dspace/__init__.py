"""A DSpace repository harvested into a set."""
