"""How documents are written: values checked, then markup in the order of the schemas."""
