"""RDF datasets that are copied: which file is the dataset, and the triplestores that follow it."""
