"""The hub: it keeps subscriptions, and delivers what publishers hand in to each subscriber, until it is received."""
