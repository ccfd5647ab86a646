"""SPARQL 1.1 by HTTP: queries and updates of an endpoint, within bounds."""
