"""What becomes visible, as events, and those who are told of it."""
