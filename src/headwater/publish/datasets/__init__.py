"""The documents of an RDF dataset (TIM): the dataset itself, its patches, the links to them, what describes it."""
