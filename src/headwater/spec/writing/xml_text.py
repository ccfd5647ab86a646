"""XML escaping of texts: they come back the same, or are refused where XML cannot hold them."""

from __future__ import annotations

import re
from typing import Final

from headwater.errors import UsageFault

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_PLAIN = re.compile('[^&<>"\t\n\r\x00-\x1f\ud800-\udfff\ufffe\uffff]*').fullmatch
_REFERENCES: Final = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    '"': "&quot;",
    "\t": "&#9;",  # a parser would make spaces of these three
    "\n": "&#10;",
    "\r": "&#13;",
}
_TABLE: Final = str.maketrans(_REFERENCES)


class WriteRefused(UsageFault):
    """What was to be written breaks a rule of the standard; Headwater never publishes that."""

    code = "HW-WRT-01"
    advice = "Correct what is to be published; the message names the rule."


def escape(text: str) -> str:
    """The text as element content or attribute value. Raises WriteRefused for characters that XML cannot hold."""
    if _PLAIN(text):
        return text
    if _NOT_XML.search(text):
        raise WriteRefused(f"a character that XML cannot hold in {text[:100]!a}", rule="RS-DOC-19")
    return text.translate(_TABLE)
