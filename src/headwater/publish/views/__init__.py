"""Lists that show what others show already, in other forms: for old harvesters and for search engines."""
