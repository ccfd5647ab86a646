"""RDF datasets in a destination (TIM)."""
