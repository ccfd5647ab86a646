"""What lines look like that were given to the wrong command: announced events, or documents of the DIT-ES protocol."""

from __future__ import annotations

import msgspec

_DOCUMENTS = frozenset({"location", "resource_set", "_source", "hits", "index", "create", "responses"})
_EVENTS = frozenset({"uri", "path"})


def looks_like_events(line: bytes) -> bool:
    """Whether a line is an object that names a resource as an event does."""
    names = _names(line)
    return bool(names & _EVENTS) and not names & _DOCUMENTS


def looks_like_documents(line: bytes) -> bool:
    """Whether a line is a document of the protocol, or a wrapper of some."""
    names = _names(line)
    return bool(names & _DOCUMENTS) and not names & _EVENTS


def _names(line: bytes) -> frozenset[str]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frozenset()
    value = value[0] if isinstance(value, list) and value else value
    return frozenset(value) if isinstance(value, dict) else frozenset()
