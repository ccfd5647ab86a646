"""How documents are read: octets to XML to records, leniently, within bounds."""
