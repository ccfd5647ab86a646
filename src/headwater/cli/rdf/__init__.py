"""`headwater rdf`: RDF datasets and the patches between them, as files."""
