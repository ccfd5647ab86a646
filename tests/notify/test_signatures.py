"""Signatures are verified by the method that they name, and nothing else counts."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.notify.websub import SignatureMethod, SignatureVerdict, signature, verify

SECRET, BODY = b"secret", b"<urlset/>"


def made(method: str, secret: bytes = SECRET, body: bytes = BODY) -> str:
    return f"{method}={hmac.new(secret, body, getattr(hashlib, method)).hexdigest()}"


CASES = {
    "sha256": (made("sha256"), SignatureVerdict.GOOD),
    "sha384": (made("sha384"), SignatureVerdict.GOOD),
    "sha512": (made("sha512"), SignatureVerdict.GOOD),
    "digits in capitals, a space": (" SHA256=" + made("sha256")[7:].upper() + " ", SignatureVerdict.GOOD),
    "sha1, which hubs are advised not to use": (made("sha1"), SignatureVerdict.GOOD),
    "md5 is none of WebSub's": (made("md5"), SignatureVerdict.UNKNOWN),
    "another secret": (made("sha256", b"other"), SignatureVerdict.WRONG),
    "another body": (made("sha256", SECRET, BODY + b" "), SignatureVerdict.WRONG),
    "the digest of another method": ("sha512=" + made("sha256")[7:], SignatureVerdict.WRONG),
    "cut off": (made("sha256")[:-2], SignatureVerdict.WRONG),
    "empty digest": ("sha256=", SignatureVerdict.WRONG),
    "no digest": ("sha256", SignatureVerdict.UNKNOWN),
    "no digits": ("sha256=zz", SignatureVerdict.UNKNOWN),
    "words": ("trust me", SignatureVerdict.UNKNOWN),
    "empty": ("", SignatureVerdict.MISSING),
    "none": (None, SignatureVerdict.MISSING),
}


@pytest.mark.parametrize("case", CASES)
def test_signatures_are_judged_ws_s_12(case: str) -> None:
    header, verdict = CASES[case]
    assert verify(header, SECRET, BODY) is verdict


@given(st.binary(min_size=1, max_size=199), st.binary(max_size=300), st.sampled_from(SignatureMethod))
def test_what_is_signed_is_verified(secret: bytes, body: bytes, method: SignatureMethod) -> None:
    assert verify(signature(secret, body, method), secret, body) is SignatureVerdict.GOOD


@given(st.text(max_size=200))
def test_no_header_does_harm(header: str) -> None:
    assert verify(header, SECRET, BODY) is not SignatureVerdict.GOOD
