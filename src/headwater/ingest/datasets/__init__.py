"""Ingest of RDF datasets: what a dataset is made of becomes canonical files, their patches, and changes of a set."""
