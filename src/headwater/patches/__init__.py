"""Patches (RS-REL-04): what changes one state of a resource into the next, octet by octet."""
