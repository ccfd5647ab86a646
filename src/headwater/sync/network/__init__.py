"""What a destination asks of the network, and how its answers come in."""
