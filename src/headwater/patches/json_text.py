"""A JSON text as a tree that keeps how it is written: white space, escapes and numbers stay as they are.

A value is its text until somebody looks into it; then it has entries, each with the white space around it. So what is
not touched comes out octet by octet, and a large text costs what is looked at.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

import msgspec

from headwater.patches.registry import DEEPEST, LARGEST, Effort, PatchRefused

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # never goes back, which would take memory for each character
_STRING_AT = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(_STRING + r'|[^\s,:\[\]{}"]+', re.DOTALL)
_INNER = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_COLON_SPACE = re.compile(r'":( ?)')


class JsonLayout(NamedTuple):
    """How a text is written: with a blank after its first colon; without any character that is not ASCII."""

    is_spaced: bool
    is_ascii: bool


class Value:
    """One value: a scalar, an array or an object. `text` is its text while nobody has looked into it."""

    __slots__ = ("_content", "text")

    def __init__(self, text: str) -> None:
        self.text: str | None = text
        self._content: Content | None = None

    def content(self, effort: Effort) -> Content | None:
        """What is within an array or object, which may be changed from now on; None for a scalar."""
        if self._content is None and self.text is not None and self.text[0] in "[{":
            effort.spend(1 + len(self.text) // 30)
            self._content = _content(self.text, effort)
            self.text = None
        return self._content

    def put_pieces(self, into: list[str]) -> None:
        """Its text as it is by now, at the end of `into`."""
        if self._content is None:
            into.append(self.text or "")
        else:
            self._content.put_pieces(into)

    def written(self, effort: Effort) -> str:
        """The same in one."""
        if self.text is not None:
            effort.spend(1 + len(self.text) // 1_000)
            return self.text
        pieces: list[str] = []
        self.put_pieces(pieces)
        text = "".join(pieces)
        effort.spend(1 + len(pieces) // 5 + len(text) // 1_000)
        return text


class Item:
    """An entry of an array, or a member of an object: its value with what is written around it.

    `lead` is the white space before it, `trail` that between it and its comma; `key` is a member's name as it is
    written, and `colon` what stands between that and the value.
    """

    __slots__ = ("colon", "key", "lead", "trail", "value")

    def __init__(self, lead: str, key: str, colon: str, value: Value, trail: str = "") -> None:
        self.lead, self.key, self.colon, self.value, self.trail = lead, key, colon, value, trail

    @property
    def shape(self) -> tuple[str, str, str, str]:
        """How it is written, but for its value."""
        return self.lead, self.key, self.colon, self.trail


class Content:
    """What is within an array or an object: items, and the white space before the closing bracket.

    Where an item comes and goes, white space follows these rules: one that is put first takes that of the one that was
    first, which gets that of the second; any other takes that of the one whose place it takes, or of the last. In an
    array or object of one item, the second is written as the first where that begins a line; else after one blank
    where the document has blanks after its colons. When the first one goes, the second takes its white space. What has
    no items is written without white space.
    """

    __slots__ = ("close", "is_object", "items", "names")

    def __init__(self, items: list[Item], close: str, *, is_object: bool) -> None:
        self.items, self.close, self.is_object = items, close, is_object
        self.names: dict[str, int] | None = None

    def put_pieces(self, into: list[str]) -> None:
        """Its text, at the end of `into`."""
        into.append("{" if self.is_object else "[")
        for number, one in enumerate(self.items):
            if number:
                into.append(",")
            into.append(one.lead + one.key + one.colon)
            one.value.put_pieces(into)
            into.append(one.trail)
        into.append(self.close)
        into.append("}" if self.is_object else "]")

    def place(self, name: str, effort: Effort) -> int | None:
        """Where the member of this name is. Raises PatchRefused where a name comes twice."""
        if self.names is None:
            effort.spend(1 + len(self.items) // 2)
            names = {plain(one.key): number for number, one in enumerate(self.items)}
            if len(names) < len(self.items):
                raise PatchRefused("an object has the same name twice")
            self.names = names
        return self.names.get(name)

    def shell(self) -> Content:
        """A copy in which items come and go by themselves; it shares the values."""
        items = [Item(one.lead, one.key, one.colon, one.value, one.trail) for one in self.items]
        return Content(items, self.close, is_object=self.is_object)

    def insert(self, place: int, name: str, value: Value, style: JsonLayout) -> None:
        """Put an item in; `name` is that of a member. `style`: how the document is written."""
        items = self.items
        key = json.dumps(name, ensure_ascii=style.is_ascii) if self.is_object else ""
        colon = (items[0].colon if items else ": " if style.is_spaced else ":") if self.is_object else ""
        if not items:
            lead = ""
        elif place == 0:
            lead = items[0].lead
            items[0].lead = self._second(style)
        elif place < len(items):
            lead = items[place].lead
        else:
            lead = items[-1].lead if len(items) > 1 else self._second(style)
        if self.names is not None and place == len(items):
            self.names[name] = place
        else:
            self.names = None
        items.insert(place, Item(lead, key, colon, value))

    def _second(self, style: JsonLayout) -> str:
        """The white space before the second item."""
        if len(self.items) > 1:
            return self.items[1].lead
        first = self.items[0].lead
        return first if "\n" in first else " " if style.is_spaced else ""

    def remove(self, place: int) -> Item:
        """Take an item out."""
        items = self.items
        if place == 0 and len(items) > 1:
            items[1].lead = items[0].lead
        if place and place == len(items) - 1:
            items[-2].trail = ""
        if len(items) == 1:
            self.close = ""
        if self.names is not None and place == len(items) - 1:
            self.names.pop(plain(items[place].key), None)
        else:
            self.names = None
        return items.pop(place)


class JsonText:
    """A whole JSON text: its one value, and what is written before and after it."""

    def __init__(self, data: bytes, effort: Effort) -> None:
        """Raises PatchRefused for what is no JSON in UTF-8, or is too large or too deep."""
        if len(data) > LARGEST:
            raise PatchRefused("it is too large")
        effort.spend(1 + len(data) // 20)
        try:
            text = data.decode()
            msgspec.json.decode(data.removeprefix(_BOM.encode()))
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as cause:
            raise PatchRefused("it is no JSON in UTF-8") from cause
        space = _SPACE.match(text, len(_BOM) if text.startswith(_BOM) else 0)
        assert space is not None
        end = len(text.rstrip(" \t\n\r"))
        self.before, self.after = text[: space.end()], text[end:]
        self.value = Value(text[space.end() : end])
        colon = _COLON_SPACE.search(text)
        self.style = JsonLayout(is_spaced=colon is None or bool(colon[1]), is_ascii=text.isascii())

    def octets(self, effort: Effort) -> bytes:
        """The text as it is by now."""
        return (self.before + self.value.written(effort) + self.after).encode()


def plain(written: str) -> str:
    """A name or string without quotes and escapes."""
    return written[1:-1] if "\\" not in written else str(json.loads(written))


def _content(text: str, effort: Effort) -> Content:
    """The items of an array or object whose text is sound; they are not looked into."""
    is_object = text[0] == "{"
    items: list[Item] = []
    at = 1
    lead, at = _space(text, at)
    if text[at] in "]}":
        return Content(items, lead, is_object=is_object)
    while True:
        key = colon = ""
        if is_object:
            name = _STRING_AT.match(text, at)
            assert name is not None
            key = name[0]
            colon, at = _colon(text, name.end())
        end = _end(text, at)
        effort.hold(2)  # with its text
        value = Value(text[at:end])
        trail, at = _space(text, end)
        items.append(Item(lead, key, colon, value, trail))
        if text[at] != ",":
            items[-1].trail = ""
            return Content(items, trail, is_object=is_object)
        lead, at = _space(text, at + 1)


def _space(text: str, at: int) -> tuple[str, int]:
    found = _SPACE.match(text, at)
    assert found is not None
    return found[0], found.end()


def _colon(text: str, at: int) -> tuple[str, int]:
    before, at = _space(text, at)
    after, at = _space(text, at + 1)
    return f"{before}:{after}", at


def _end(text: str, at: int) -> int:
    """Where the value ends that begins here."""
    if text[at] not in "[{":
        scalar = _SCALAR.match(text, at)
        assert scalar is not None
        return scalar.end()
    depth = 0
    for token in _INNER.finditer(text, at):
        bracket = token[0]
        if bracket in "[{":
            depth += 1
            if depth > DEEPEST:
                raise PatchRefused("it is too deep")
        elif bracket in "]}":
            depth -= 1
            if not depth:
                return token.end()
    raise PatchRefused("it does not end")
