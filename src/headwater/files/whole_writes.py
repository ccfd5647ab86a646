"""Writing octets to an open file to their end."""

from __future__ import annotations

import os


def write_all(descriptor: int, octets: bytes | memoryview) -> None:
    """Write to the end: the kernel may take a part at a time."""
    written = os.write(descriptor, octets)
    if written == len(octets):
        return
    rest = memoryview(octets)
    while rest := rest[written:]:
        written = os.write(descriptor, rest)
