"""Ids of documents on a search cluster: short ones, by digest, whatever they name."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode

DIGEST_OCTETS = 20


def short(*texts: str) -> str:
    """A name of 27 characters for texts of any length and alphabet: 160 bits of their digest."""
    digest = hashlib.blake2b("\0".join(texts).encode(), digest_size=DIGEST_OCTETS).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
