"""Object storage: the interface of a store of documents and packages, and its implementation in a local folder."""
