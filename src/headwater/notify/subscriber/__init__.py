"""A subscriber: channels, subscriptions at hubs, what is delivered."""
