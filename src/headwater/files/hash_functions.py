"""Hash functions by the names that the `hash` attribute uses (RS-MD-05)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

HASHERS: dict[str, Callable[..., _Hash]] = {
    name: partial(getattr(hashlib, name.replace("-", "")), usedforsecurity=False)
    for name in ("md5", "sha-1", "sha-224", "sha-256", "sha-384", "sha-512")
}
"""Makers of hash objects; some systems refuse MD5 for security. A test holds the names to those of `spec.hashes`, which
a hashing process does not import."""
