"""Links that the entries of a set get when its documents are rendered, beside those that its records have."""
