"""The sets of a source that publish an RDF dataset (TIM)."""
