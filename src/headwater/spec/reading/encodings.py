"""Character encodings that expat does not know: East Asian and 32-bit documents are recoded to UTF-8 (AMB-10)."""

from __future__ import annotations

import codecs
import re
from typing import Final

from headwater.spec.faults import NotXml

SNIFFED: Final = 256
"""Octets within which an XML declaration must end to be looked at here."""

_DECLARED = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._\-]{0,40})["']""")
_RECODED: Final = frozenset(
    {"gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "euc_jp", "euc_kr", "cp949"}
    | {"iso2022_jp", "iso2022_kr"}
)
_MARKS: Final = (  # the 32-bit marks first: the little-endian one begins like that of UTF-16
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"<\x00\x00\x00", "utf-32-le"),
    (b"\x00\x00\x00<", "utf-32-be"),
)


def foreign(head: bytes) -> str | None:
    """The encoding of a document with these first octets if it must be recoded; None for what expat reads itself."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    match = _DECLARED.match(head)
    if match is None:
        return None
    try:
        name = codecs.lookup(match[1].decode("ascii")).name
    except LookupError:
        return None  # expat says so, with the line
    return name if name in _RECODED else None


class Recoder:
    """Recodes octets of an encoding that expat does not know as UTF-8."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")

    def push(self, data: bytes, *, final: bool = False) -> bytes:
        """Recode. Raises NotXml for octets that the encoding does not have."""
        try:
            return self._decoder.decode(data, final).encode("utf-8")
        except UnicodeError as cause:
            raise NotXml(f"octets that are not {self._encoding}") from cause
