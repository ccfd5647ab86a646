"""Notifications: what becomes visible of a set is sent to the hubs of the source, by a thread of its own."""
