"""Entities that the DTD of an RDF/XML document declares: names for the beginnings of IRIs, and no bombs.

The RDF parser puts the value of an entity together while it reads its declaration, with no bound. Ontologies declare an
entity for each namespace, so DTDs cannot be refused as such; entities of entities, and long ones, are what bombs need.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from headwater.rdf.faults import RdfTooCostly

LONGEST_DECLARATION: Final = 1000
"""Octets of the declaration of an entity."""
EXPANDED_OCTETS: Final = 16 << 20
GROWTH: Final = 10
"""References may add so many octets, and so many for each octet of the document."""

_BEGIN: Final = b"<!ENTITY"
_DECLARATION: Final = re.compile(rb"<!ENTITY([^<]*)<")
"""The parser, too, ends it at the next `<`: no value of an entity has one."""
_REFERENCE: Final = re.compile(rb"&(?!#|\Z)")
"""To an entity, not to a character."""


def bounded_entities(parts: Iterable[bytes], where: str) -> Iterator[bytes]:
    """The octets of a document in UTF-8, which is all that the parser reads, as they come. Raises RdfTooCostly before
    the end of a declaration that is refused, or of references that add too much, is passed on."""
    rest, longest, added, seen = b"", 0, 0, 0
    for part in parts:
        text = rest + part
        for found in _DECLARATION.finditer(text):
            longest = max(longest, _checked(found[1], where))
        rest = text[text.rfind(b"<") :] if b"<" in text else b""
        if rest.startswith(_BEGIN):
            longest = max(longest, _checked(rest, where))
        elif not _BEGIN.startswith(rest):
            rest = b""
        seen += len(part)
        added += longest * part.count(b"&")
        if added > EXPANDED_OCTETS + GROWTH * seen:
            raise RdfTooCostly("the entities of the DTD make the document too large", where=where)
        yield part


def _checked(declaration: bytes, where: str) -> int:
    if _REFERENCE.search(declaration):
        raise RdfTooCostly("the DTD declares an entity that refers to another one", where=where)
    if len(declaration) > LONGEST_DECLARATION:
        raise RdfTooCostly(f"the DTD declares an entity of more than {LONGEST_DECLARATION:,} octets", where=where)
    return len(declaration)
