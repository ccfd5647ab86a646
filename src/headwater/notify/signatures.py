"""Signatures of deliveries: `X-Hub-Signature`, an HMAC over the octets of a body, made and verified (WS-H-14, WS-S-12).

Pure.
"""

from __future__ import annotations

import hmac
from enum import Enum, StrEnum, auto


class SignatureMethod(StrEnum):
    """The digests by which deliveries may be signed (WS-H-14)."""

    SHA1 = "sha1"
    SHA256 = "sha256"
    SHA384 = "sha384"
    SHA512 = "sha512"


class SignatureVerdict(Enum):
    """What the signature of a delivery comes to."""

    GOOD = auto()
    MISSING = auto()
    UNKNOWN = auto()
    """It cannot be read, or its method is none of `SignatureMethod`."""

    WRONG = auto()


def signature(secret: bytes, body: bytes, method: SignatureMethod) -> str:
    """The value of `X-Hub-Signature`: HMAC over the octets of the body (WS-H-14)."""
    return f"{method.value}={hmac.new(secret, body, method.value).hexdigest()}"


def verify(header: str | None, secret: bytes, body: bytes) -> SignatureVerdict:
    """Judge the value of `X-Hub-Signature` by the method that it names, in constant time (WS-S-12)."""
    if header is None or not header.strip():
        return SignatureVerdict.MISSING
    name, equals, digest = header.strip().partition("=")
    try:
        method = SignatureMethod(name.strip().lower())
        told = bytes.fromhex(digest.strip())
    except ValueError:
        return SignatureVerdict.UNKNOWN
    if not equals:
        return SignatureVerdict.UNKNOWN
    if not hmac.compare_digest(hmac.digest(secret, body, method.value), told):
        return SignatureVerdict.WRONG
    return SignatureVerdict.GOOD
