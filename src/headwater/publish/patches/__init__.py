"""Patches of a source (RS-REL-04): made before the Change List that names them, kept as long as one does."""
