"""Sets on their way from one catalog to another, as lines in a file or a pipe."""
