"""Reads `application/link-format` as a TimeMap has it (RFC 7089, 5; RFC 6690), link by link, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headwater.errors import SourceFault
from headwater.spec.reading.discovery import HeaderLink, read_link

LONGEST_LINK: Final = 1 << 16
"""Octets of one link; a URI has 32 KiB at most."""

_SEPARATORS = ", \t\r\n"


def timemap_links(chunks: Iterable[bytes], base: str) -> Iterator[HeaderLink]:
    """The links of a TimeMap whose address is `base`, in their order. Raises SourceFault where it is malformed."""
    text = ""
    for chunk in chunks:
        text += chunk.decode("utf-8", "replace") if chunk.isascii() else chunk.decode("latin-1")
        at = 0
        while (found := _link(text, at, base, ended=False)) is not None:
            link, at = found
            if link is not None:
                yield link
        text = text[at:]
        if len(text) > LONGEST_LINK + len(chunk):
            raise SourceFault("a link of a TimeMap has no end", where=base, rule="DST-S8")
    at = 0
    while (found := _link(text, at, base, ended=True)) is not None:
        link, at = found
        if link is not None:
            yield link
    if text[at:].strip(_SEPARATORS):
        raise SourceFault("the TimeMap is malformed", where=base, rule="DST-S8")


def _link(text: str, at: int, base: str, *, ended: bool) -> tuple[HeaderLink | None, int] | None:
    """The link at a place of the text and where the next one begins; None where it is not all there."""
    read = read_link(text, at, base)
    if read is None:
        return None
    link, end = read
    rest = text[end : end + 64].lstrip(" \t\r\n")
    if rest.startswith(","):
        return link, text.index(",", end) + 1
    if ended and not text[end:].strip(_SEPARATORS):
        return link, len(text)
    return None
