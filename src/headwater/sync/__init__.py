"""The destination: copies the sets of a source into a folder, keeps them in step, and audits them."""
