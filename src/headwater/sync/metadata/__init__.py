"""Metadata records: resources chosen by what describes them, and records before their contents (RS-DST-16, DST-S5)."""
