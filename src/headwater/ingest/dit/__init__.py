"""Documents of a harvester (DIT-ES), followed in its index or sent to us, for push sets."""
