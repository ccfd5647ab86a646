"""Triplestores that follow a dataset: the embedded one, SPARQL endpoints, and what holds in any of them."""
