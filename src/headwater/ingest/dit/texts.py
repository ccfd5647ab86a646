"""JSON texts out of lines, and the documents of an index out of what wraps them.

A text is one line, or one or more over many lines where the first line only begins one: tools print what an index
answers over many lines, and clients send it under any media type. What is longer than a text may be is taken line by
line after all, and nothing is lost by the attempt. Wrappers are search and scroll answers, lines of dumps and bulk
requests: the shapes of the 1.x servers of the seed (`_type` tells the kind) and of present ones (`_type` is absent or
`_doc`).
"""

import json
import re
from math import inf
from typing import Any, Final, NoReturn

import msgspec

from headwater.ingest.dit.documents import CHANGE, RESOURCE, BadDocument
from headwater.ingest.push.feed import Line

_LEVELS: Final = 200  # levels of a text that are read: more than a document may have with all its wrappers
_LONGEST_NUMBER: Final = 300
"""Characters of a number that is read as one: anything longer is beyond what any field holds."""
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{\]}]', re.DOTALL)


class Texts:
    """Takes lines and gives lines; those that are a JSON text together, as one line with the number of the first."""

    def __init__(self, most_octets: int) -> None:
        self._most_octets = most_octets
        self._held: list[Line] | None = []
        self._octets = 0

    def push(self, line: Line) -> list[Line]:
        """The lines that can be taken now."""
        if self._held is None:
            return [line]
        before, last = list[Line](), self._held[-1].text or b"" if self._held else b""
        if len(self._held) > 1 and _begins(line) and last.rstrip() in (b"}", b"]"):  # what is broken does not heal
            before, self._held, self._octets = _together(self._held), [], 0
        self._held.append(line)
        self._octets += len(line.text or b"")
        text = line.text
        goes_on = text is not None and self._octets <= self._most_octets
        if text is not None and goes_on and len(self._held) == 1:
            goes_on = text.lstrip().startswith((b"{", b"[")) and not _is_json(text)
        return before + ([] if goes_on else self._release())

    def finish(self) -> list[Line]:
        """What is left at the end."""
        held = self._release()
        return _together(held) if len(held) > 1 else held

    def _release(self) -> list[Line]:
        held, self._held = self._held or [], None
        return held


def decoded(text: bytes | str) -> object:
    """The value of a JSON text. Raises BadDocument.

    Engines accept and return what msgspec refuses: half of a surrogate pair, numbers beyond all bounds, a thousand
    levels. Here these are values too, so that one such document is judged alone, and not all that came with it.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as cause:
        try:
            plain = text if isinstance(text, str) else text.decode("utf-8", "surrogatepass")
            try:
                return _READER.decode(plain)
            except RecursionError:
                return _READER.decode(_shallow(plain))
        except (ValueError, RecursionError):
            raise BadDocument(f"not one JSON text a line: {cause}"[:200]) from cause


def _integer(text: str) -> int | str:
    """The number; as text, which no field takes for one, when it is too large. There may be millions in a text."""
    return int(text) if len(text) <= _LONGEST_NUMBER else text


def _decimal(text: str) -> float | str:
    number = float(text) if len(text) <= _LONGEST_NUMBER else inf
    return number if -inf < number < inf else text


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_READER = json.JSONDecoder(parse_int=_integer, parse_float=_decimal, parse_constant=_no_number)


def _shallow(text: str) -> str:
    """The text with null in place of what is too deep; its document has too many levels all the same."""
    parts, depth, start = [], 0, 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == _LEVELS + 1:
                parts.append(text[start : token.start()])
        elif token[0] in "]}":
            if depth == _LEVELS + 1:
                parts.append("null")
                start = token.end()
            depth -= 1
    if depth:
        raise ValueError("unbalanced brackets")
    return "".join((*parts, text[start:]))


def _begins(line: Line) -> bool:
    return (line.text or b"").startswith((b"{", b"["))


def _together(lines: list[Line]) -> list[Line]:
    """The one text that the lines are; what is no text stays in lines."""
    whole = Line(lines[0].number, b"\n".join(line.text or b"" for line in lines))
    return [whole] if _is_json(whole.text) else lines


def _is_json(text: bytes | None) -> bool:
    try:
        decoded(text or b"")
    except BadDocument:
        return False
    return True


_ACTIONS: Final = frozenset({"index", "create", "update", "delete"})
_KINDS: Final = frozenset({RESOURCE, CHANGE})


class Wrapped(msgspec.Struct, frozen=True):
    """One document as it was found: its decoded JSON, what the wrapper says of its kind, id and time of storage.

    `number` is that of the operation that wrote it, in an index.
    """

    source: object
    kind: str | None = None
    id: str | None = None
    stored_at: object = None
    number: int = -1


class Unwrapper:
    """Takes decoded JSON texts, one after another; a bulk request's action line is about the text that follows it."""

    def __init__(self) -> None:
        self._action: dict[str, Any] | None = None

    def push(self, value: object) -> list[Wrapped]:
        """The documents in one text. Raises BadDocument."""
        action, self._action = self._action, None
        if action is not None:
            ((verb, head),) = action.items()
            if verb == "update" and isinstance(value, dict):
                value = value.get("upsert", value.get("doc", value))
            return [_hit({**head, "_source": value})]
        if isinstance(value, list):
            return [one for item in value for one in _found(item)]
        if not isinstance(value, dict) or (name := _action(value)) is None:
            return _found(value)
        if name == "delete":  # what has gone is told by a change document (DIT-02)
            raise BadDocument("a bulk deletion is not supported: send a change document")
        self._action = value
        return []

    def skip(self) -> None:
        """A text could not be read: it was the document of the action before it, if there was one."""
        self._action = None

    def finish(self) -> None:
        """The end has come. Raises BadDocument when an action line has nothing to act on."""
        if self._action is not None:
            self._action = None
            raise BadDocument("a bulk action lacks its document")


def _found(value: object) -> list[Wrapped]:
    """The documents of an answer, or the one document; what is none is for its reader to refuse, by itself."""
    if isinstance(value, dict) and "location" not in value:
        several = value.get("responses", value.get("docs"))
        if isinstance(several, list):  # answers to several searches, or to a question for several documents
            return [one for item in several for one in _answered(item)]
    return _answered(value)


def _answered(value: object) -> list[Wrapped]:
    hits = value.get("hits") if isinstance(value, dict) else None
    found = hits["hits"] if isinstance(hits, dict) and isinstance(hits.get("hits"), list) else [value]
    return [_hit(one) if isinstance(one, dict) and "_source" in one else Wrapped(one) for one in found]


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
