"""What the standard says, without I/O, clock or database."""
