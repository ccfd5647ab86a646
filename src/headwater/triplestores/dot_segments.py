"""IRIs with dot segments in SPARQL, written so that an endpoint that resolves IRIs has to leave them as they are.

To RDF `http://x/a/../b` and `http://x/b` are two IRIs (NQUD-A7); some endpoints read both as the second. A prefixed
name is what its two halves are when put together (SPARQL 1.1, 4.1.1), and nothing resolves it.
"""

from __future__ import annotations

import re
from typing import Final

EXAMPLE: Final = "<http://example.org/a/../b>"
"""An IRI that shows whether an endpoint resolves any."""

_DOTS = re.compile(r"[:/]\.\.?[/?#>]")
_TERM = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|<([^<>"\s]*?[:/])(\.\.?(?=[/?#>])[^<>"\s]*)>')
_AS_IT_IS = re.compile(
    "[A-Za-z0-9_:\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u2070-\u218f\u2c00-\u2fef\u3001-\ud7ff"
    "\uf900-\ufdcf\ufdf0-\ufffd]"
)
_ESCAPED: Final = frozenset("_~.-!$&'()*+,;=/?#@%")


class NoPrefixedName(ValueError):
    """An IRI has a character that no prefixed name can have."""


def first_dotted(text: str) -> str | None:
    """The first IRI with dot segments in a text of SPARQL whose literals stand in double quotes, with its brackets."""
    if _DOTS.search(text) is None:
        return None
    return next((found[0] for found in _TERM.finditer(text) if found[1] is not None), None)


def with_prefixed_names(text: str) -> str:
    """The same text, in which such IRIs are prefixed names; their prefixes stand before it. Raises NoPrefixedName."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        name = names.setdefault(found[1], f"dots{len(names)}")
        return f"{name}:{''.join(map(_in_local_name, found[2]))}"

    body = _TERM.sub(named, text)
    return "".join(f"PREFIX {name}: <{iri}>\n" for iri, name in names.items()) + body


def _in_local_name(character: str) -> str:
    if character in _ESCAPED:
        return f"\\{character}"
    if _AS_IT_IS.match(character) is None:
        raise NoPrefixedName(character)
    return character
