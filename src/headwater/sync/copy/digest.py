"""Digests of local files, one at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from headwater.spec.hashes import HASHLIB
from headwater.sync.copy.hash_program import digests_of

HASHERS: dict[str, Callable[..., Any]] = {name: getattr(hashlib, ours) for name, ours in HASHLIB.items()}


def digest_of_descriptor(descriptor: int, algorithm: str) -> str:
    """The hex digest of everything that can be read from an open file."""
    return digests_of_descriptor(descriptor, (algorithm,))[1][0]


def digest_of_file(open_it: Callable[[], int], algorithm: str) -> str | None:
    """The hex digest of a file that `open_it` opens for reading; None when it cannot be opened or read."""
    try:
        descriptor = open_it()
    except OSError:
        return None
    try:
        return digest_of_descriptor(descriptor, algorithm)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def digests_of_descriptor(descriptor: int, algorithms: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """The number of octets and the hex digests, from one reading."""
    return digests_of(descriptor, [HASHERS[name] for name in algorithms])
