"""The documents of a source: Resource Lists and Change Lists, read and staged, and the position in the changes."""
