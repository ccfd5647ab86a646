"""A source at work: its configuration, the threads that keep its sets current, and the right to publish them."""
