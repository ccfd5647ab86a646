"""Commands of a destination: what copies, proves, and looks after a copy."""
