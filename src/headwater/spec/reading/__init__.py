"""How documents are read: bytes to XML to records, leniently, within bounds."""
