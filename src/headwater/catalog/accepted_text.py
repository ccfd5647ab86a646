"""What can be in a catalog as text at all, on any backend."""

from __future__ import annotations


def is_text(text: str) -> bool:
    """Whether the text has UTF-8 octets; a lone surrogate cannot even be asked for."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
