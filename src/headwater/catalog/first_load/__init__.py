"""The first load of a set: what makes it faster than a load of anything."""
