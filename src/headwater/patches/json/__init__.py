"""JSON Patch (RFC 6902), made of and applied to JSON texts as they are written."""
