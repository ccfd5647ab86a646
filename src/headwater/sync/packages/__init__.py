"""Packages in a destination: dumps and answers on demand as ways to the octets of resources, and which way pays."""
