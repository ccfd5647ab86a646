"""XML Patch (RFC 5261 in the document of RFC 7351), made of and applied to XML texts as they are written."""
