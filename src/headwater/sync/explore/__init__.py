"""What `headwater explore` shows: all that a source offers, and one resource with what belongs to it."""
