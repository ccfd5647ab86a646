"""Push: who publishes tells a hub (WebSub), the hub tells those who have subscribed."""
