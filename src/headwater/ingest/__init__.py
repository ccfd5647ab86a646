"""How changes reach the catalog."""
