"""The RDF datasets that a source publishes: what the catalog holds of each, and the files of its states and patches."""
