"""One set brought up to date: baseline or increment, the plan of what differs, and its application."""
