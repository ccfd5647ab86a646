"""Digests as the `hash` attribute writes them: `algorithm:hex`, several to a value (RS-MD-05, AMB-28, AMB-32)."""

from __future__ import annotations

import re

import msgspec


class Digest(msgspec.Struct, frozen=True, gc=False):
    """One digest: the algorithm's lower-case IANA name and lower-case hex of the right length."""

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"


class Hash(msgspec.Struct, frozen=True):
    """What a `hash` attribute holds: the digests that can be read, and the items that cannot."""

    digests: tuple[Digest, ...] = ()
    unreadable: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    contradictory: tuple[str, ...] = ()


STRONGEST = ("sha-512", "sha-384", "sha-256", "sha-1", "md5")
"""Algorithms that can be checked, strongest first (DST-V1)."""

HEX_LENGTH = {"sha-512": 128, "sha-384": 96, "sha-256": 64, "sha-224": 56, "sha-1": 40, "md5": 32}
HASHLIB = {"sha-512": "sha512", "sha-384": "sha384", "sha-256": "sha256", "sha-1": "sha1", "md5": "md5"}
"""Names of the same algorithms in Python's `hashlib`."""

_ALIASES = {name.replace("-", ""): name for name in HEX_LENGTH} | {name: name for name in HEX_LENGTH}
_BY_LENGTH = {32: "md5", 40: "sha-1", 64: "sha-256"}
_HEX = re.compile(r"[0-9a-fA-F]+\Z")
_EXACT = re.compile(r"(?:" + "|".join(rf"{name}:[0-9a-f]{{{length}}}" for name, length in HEX_LENGTH.items()) + r")\Z")
"""An item as the standard writes it, and nearly every source: nothing of it has to be interpreted."""


def parse_hash(text: str) -> Hash:
    """Read a `hash` attribute leniently: case, `sha1` for `sha-1`, `urn:sha1:…`, a bare hex digest (AMB-28).

    The first digest of an algorithm wins; a second one that differs is reported as contradictory (AMB-32).
    """
    digests: dict[str, Digest] = {}
    unreadable: list[str] = []
    guessed: list[str] = []
    contradictory: list[str] = []
    for item in text.split():
        if _EXACT.match(item):
            name, _, value = item.partition(":")
            if digests.setdefault(name, digest := Digest(name, value)) is not digest and digests[name] != digest:
                contradictory.append(item)
            continue
        name, _, value = item.removeprefix("urn:").rpartition(":")
        algorithm = _ALIASES.get(name.lower()) if name else _BY_LENGTH.get(len(value))
        if algorithm is None or len(value) != HEX_LENGTH[algorithm] or not _HEX.match(value):
            unreadable.append(item)
            continue
        if not name:
            guessed.append(item)
        digest = Digest(algorithm, value.lower())
        if digests.setdefault(algorithm, digest) != digest:
            contradictory.append(item)
    return Hash(tuple(digests.values()), tuple(unreadable), tuple(guessed), tuple(contradictory))
