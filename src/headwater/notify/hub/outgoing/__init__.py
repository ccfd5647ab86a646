"""The requests that a hub makes: verifications, deliveries, topics that are fetched."""
