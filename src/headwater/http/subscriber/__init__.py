"""The callbacks of a subscriber over HTTP, and copies that are followed by what comes there."""
