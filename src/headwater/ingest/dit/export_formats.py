"""Formats that wrap documents of an index: search and scroll answers, lines of dumps, bulk requests.

Pure: decoded JSON in, documents with their kind and id out. Understood are the shapes of the 1.x servers of the seed
(`_type` tells the kind) and of present ones (`_type` is absent or `_doc`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.ingest.dit.documents import CHANGE, RESOURCE, BadDocument

_ACTIONS: Final = frozenset({"index", "create", "update", "delete"})
_KINDS: Final = frozenset({RESOURCE, CHANGE})


class Wrapped(msgspec.Struct, frozen=True):
    """One document as it was found: its decoded JSON, what the wrapper says of its kind, id and time of storage."""

    source: object
    kind: str | None = None
    id: str | None = None
    stored_at: object = None


class Unwrapper:
    """Takes decoded JSON texts, one after another; a bulk request's action line is about the text that follows it."""

    def __init__(self) -> None:
        self._action: dict[str, Any] | None = None

    def push(self, value: object) -> list[Wrapped]:
        """The documents in one text. Raises BadDocument."""
        action, self._action = self._action, None
        if action is not None:
            return [_acted(action, value)]
        if isinstance(value, list):
            return [one for item in value for one in _found(item)]
        if not isinstance(value, dict) or (name := _action(value)) is None:
            return _found(value)
        if name == "delete":  # what has gone is told by a change document (DIT-02)
            raise BadDocument("a bulk deletion says nothing of a resource; a deletion is a change document")
        self._action = value
        return []

    def skip(self) -> None:
        """A text could not be read: it was the document of the action before it, if there was one."""
        self._action = None

    def finish(self) -> None:
        """The end has come. Raises BadDocument when an action line has nothing to act on."""
        if self._action is not None:
            self._action = None
            raise BadDocument("a bulk action without its document")


def _acted(action: dict[str, Any], value: object) -> Wrapped:
    ((name, head),) = action.items()
    if name == "update" and isinstance(value, dict):
        value = value.get("upsert", value.get("doc", value))
    return _hit({**head, "_source": value})


def _found(value: object) -> list[Wrapped]:
    """The documents of an answer, or the one document; what is none is for its reader to refuse, by itself."""
    if isinstance(value, dict) and "location" not in value:
        several = value.get("responses", value.get("docs"))
        if isinstance(several, list):  # answers to several searches, or to a question for several documents
            return [one for item in several for one in _answered(item)]
    return _answered(value)


def _answered(value: object) -> list[Wrapped]:
    hits = value.get("hits") if isinstance(value, dict) else None
    if isinstance(hits, dict) and isinstance(hits.get("hits"), list):
        return [_document(hit) for hit in hits["hits"]]
    return [_document(value)]


def _document(value: object) -> Wrapped:
    return _hit(value) if isinstance(value, dict) and "_source" in value else Wrapped(value)


def _action(value: dict[str, Any]) -> str | None:
    if len(value) != 1:
        return None
    ((name, head),) = value.items()
    return name if name in _ACTIONS and isinstance(head, dict) and "location" not in head else None


def _hit(value: dict[str, Any]) -> Wrapped:
    kind, identity = value.get("_type"), value.get("_id")
    stored = value.get("_timestamp")
    fields = value.get("fields")
    if stored is None and isinstance(fields, dict):
        stored = fields.get("_timestamp")
    if isinstance(stored, list):
        stored = stored[0] if stored else None
    return Wrapped(
        source=value["_source"],
        kind=kind if isinstance(kind, str) and kind in _KINDS else None,
        id=identity if isinstance(identity, str) else None,
        stored_at=stored,
    )
