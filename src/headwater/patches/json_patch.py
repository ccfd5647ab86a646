"""JSON Patch (RFC 6902) of texts as they are written: made such that applying it gives the new text octet by octet.

A text is a tree that keeps white space, escapes and numbers as they are written. A value is its text until somebody
looks into it; then it has entries, each with the white space around it. So what is not touched comes out octet by
octet, and a large text costs what is looked at.

Values of a patch are taken over as they are written in it. An object's new member comes last, save where the names
were in order: then it takes its place in that order. One that is moved comes last in any case, so that a move to where
it is makes it the last. The white space around what comes and goes is `_Content`'s. What no operation can write as it
is written in the new text (white space, the order of names) is told by replacing the array or object around it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from headwater.patches import DEEPEST, LARGEST, MOST_OPERATIONS, Effort, PatchRefused

# a text as a tree

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\n\r]*")
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'  # never goes back, which would take memory for each character
_STRING_AT = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(_STRING + r'|[^\s,:\[\]{}"]+', re.DOTALL)
_INNER = re.compile(_STRING + r"|[\[\]{}]", re.DOTALL)
_COLON_SPACE = re.compile(r'":( ?)')


class _JsonLayout(NamedTuple):
    """How a text is written: with a blank after its first colon; without any character that is not ASCII."""

    is_spaced: bool
    is_ascii: bool


class _Value:
    """One value: a scalar, an array or an object. `text` is its text while nobody has looked into it."""

    __slots__ = ("_content", "_effort", "text")

    def __init__(self, text: str, effort: Effort) -> None:
        self.text: str | None = text
        self._effort = effort
        self._content: _Content | None = None

    def content(self) -> _Content | None:
        """What is within an array or object, which may be changed from now on; None for a scalar."""
        if self._content is None and self.text is not None and self.text[0] in "[{":
            self._effort.spend(1 + len(self.text) // 30)
            self._content = _content(self.text, self._effort)
            self.text = None
        return self._content

    def put(self, text: str) -> None:
        """Make it another value."""
        self.text, self._content = text, None

    def put_pieces(self, into: list[str]) -> None:
        """Its text as it is by now, at the end of `into`."""
        if self._content is None:
            into.append(self.text or "")
        else:
            self._content.put_pieces(into)

    def written(self) -> str:
        """The same in one."""
        pieces: list[str] = []
        self.put_pieces(pieces)
        text = "".join(pieces)
        self._effort.spend(1 + len(pieces) // 5 + len(text) // 1_000)
        return text


class _Item:
    """An entry of an array, or a member of an object: its value with what is written around it.

    `lead` is the white space before it, `trail` that between it and its comma; `key` is a member's name as it is
    written, and `colon` what stands between that and the value.
    """

    __slots__ = ("colon", "key", "lead", "trail", "value")

    def __init__(self, lead: str, key: str, colon: str, value: _Value, trail: str = "") -> None:
        self.lead, self.key, self.colon, self.value, self.trail = lead, key, colon, value, trail

    @property
    def shape(self) -> tuple[str, str, str, str]:
        """How it is written, but for its value."""
        return self.lead, self.key, self.colon, self.trail


class _Content:
    """What is within an array or an object: items, and the white space before the closing bracket.

    Where an item comes and goes, white space follows these rules: one that is put first takes that of the one that was
    first, which gets that of the second; any other takes that of the one whose place it takes, or of the last. In an
    array or object of one item, the second is written as the first where that begins a line; else after one blank
    where the document has blanks after its colons. When the first one goes, the second takes its white space. What has
    no items is written without white space.
    """

    __slots__ = ("_effort", "close", "is_object", "items", "names")

    def __init__(self, items: list[_Item], close: str, effort: Effort, *, is_object: bool) -> None:
        self.items, self.close, self._effort, self.is_object = items, close, effort, is_object
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

    def place(self, name: str) -> int | None:
        """Where the member of this name is. Raises PatchRefused where a name comes twice."""
        if self.names is None:
            self._effort.spend(1 + len(self.items) // 2)
            names = {plain(one.key): number for number, one in enumerate(self.items)}
            if len(names) < len(self.items):
                raise PatchRefused("an object has the same name twice")
            self.names = names
        return self.names.get(name)

    def shell(self) -> _Content:
        """A copy in which items come and go by themselves; it shares the values."""
        items = [_Item(one.lead, one.key, one.colon, one.value, one.trail) for one in self.items]
        return _Content(items, self.close, self._effort, is_object=self.is_object)

    def insert(self, place: int, name: str, value: _Value, style: _JsonLayout) -> None:
        """Put an item in; `name` is that of a member. `style`: how the document is written."""
        items = self.items
        self._effort.spend(1 + len(items) // 100)
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
        items.insert(place, _Item(lead, key, colon, value))

    def _second(self, style: _JsonLayout) -> str:
        """The white space before the second item."""
        if len(self.items) > 1:
            return self.items[1].lead
        first = self.items[0].lead
        return first if "\n" in first else " " if style.is_spaced else ""

    def remove(self, place: int) -> _Item:
        """Take an item out."""
        items = self.items
        self._effort.spend(1 + len(items) // 100)
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


class _JsonText:
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
        self.value = _Value(text[space.end() : end], effort)
        colon = _COLON_SPACE.search(text)
        self.style = _JsonLayout(is_spaced=colon is None or bool(colon[1]), is_ascii=text.isascii())

    def octets(self) -> bytes:
        """The text as it is by now."""
        return (self.before + self.value.written() + self.after).encode()


def plain(written: str) -> str:
    """A name or string without quotes and escapes."""
    return written[1:-1] if "\\" not in written else str(json.loads(written))


def _content(text: str, effort: Effort) -> _Content:
    """The items of an array or object whose text is sound; they are not looked into."""
    is_object = text[0] == "{"
    items: list[_Item] = []
    at = 1
    lead, at = _space(text, at)
    if text[at] in "]}":
        return _Content(items, lead, effort, is_object=is_object)
    while True:
        key = colon = ""
        if is_object:
            name = _STRING_AT.match(text, at)
            assert name is not None
            key = name[0]
            before, at = _space(text, name.end())
            after, at = _space(text, at + 1)
            colon = f"{before}:{after}"
        end = _end(text, at)
        effort.hold(2)  # with its text
        value = _Value(text[at:end], effort)
        trail, at = _space(text, end)
        items.append(_Item(lead, key, colon, value, trail))
        if text[at] != ",":
            items[-1].trail = ""
            return _Content(items, trail, effort, is_object=is_object)
        lead, at = _space(text, at + 1)


def _space(text: str, at: int) -> tuple[str, int]:
    found = _SPACE.match(text, at)
    assert found is not None
    return found[0], found.end()


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


_MOST_EDITS: Final = 400
_MOST_PAIRS: Final = 200_000
"""Beyond so many items that only one array has, or pairs of equal ones, the parts that differ are taken as one."""


def _blocks(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[tuple[int, int, int, int]]:
    """What differs, in order: from and to where in the old one, and in the new one. Raises PatchRefused."""
    begin, shortest = 0, min(len(old), len(new))
    effort.spend(shortest // 4 + 1)
    while begin < shortest and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    a, b = old[begin : len(old) - end], new[begin : len(new) - end]
    middle = (begin, begin + len(a), begin, begin + len(b))
    if not (a and b):
        return [middle] if a or b else []
    held, wanted = Counter(a), Counter(b)
    pairs = sum(count * wanted[one] for one, count in held.items())
    effort.spend(len(a) + len(b) + 2 * pairs)
    if (held - wanted).total() + (wanted - held).total() > _MOST_EDITS or pairs > _MOST_PAIRS:
        return [middle]
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [(i + begin, j + begin, m + begin, n + begin) for tag, i, j, m, n in matched if tag != "equal"]


_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_WRONG_ESCAPE = re.compile(r"~(?![01])")


class _Place(NamedTuple):
    """Where a pointer leads: the array or object, and the last name of the pointer. No `within`: the whole text."""

    within: _Content | None
    name: str


def apply(old: bytes, patch: bytes, effort: Effort | None = None) -> bytes:
    """The octets that the patch makes of the old ones. Raises PatchRefused."""
    effort = effort or Effort()
    text = _JsonText(old, effort)
    operations = _JsonText(patch, effort).value.content()
    if operations is None or operations.is_object:
        raise PatchRefused("a JSON Patch is an array")
    if len(operations.items) > MOST_OPERATIONS:
        raise PatchRefused("it has too many operations")
    applied = _Application(text, effort)
    try:
        for one in operations.items:
            applied.take(one.value)
        return text.octets()
    except RecursionError as cause:
        raise PatchRefused("it is too deep") from cause


class _Application:
    """Does one operation after the other. `_octets` is how large the text can have become."""

    def __init__(self, text: _JsonText, effort: Effort) -> None:
        self._text = text
        self._effort = effort
        self._octets = len(text.value.text or "")

    def take(self, operation: _Value) -> None:
        """Do an operation. Raises PatchRefused."""
        self._effort.spend(10)
        members = operation.content()
        if members is None or not members.is_object:
            raise PatchRefused("an operation is an object")
        name, path = _string(members, "op"), _string(members, "path")
        match name:
            case "add":
                self._add(path, _member(members, "value").written())
            case "remove":
                self._remove(path)
            case "replace":
                written = _member(members, "value").written()
                self._grown(len(written))
                self._found(path).put(written)
            case "move":
                from_ = _string(members, "from")
                if path.startswith(f"{from_}/"):
                    raise PatchRefused("a value cannot be moved into itself")
                if path != from_ or (path and (within := self._place(path).within) and within.is_object):
                    self._add(path, self._remove(from_).value.written(), last=True)
                else:
                    self._found(path)
            case "copy":
                self._add(path, self._found(_string(members, "from")).written())
            case "test":
                written, held = _member(members, "value").written(), self._found(path).written()
                self._effort.spend(1 + (len(held) + len(written)) // 20)
                if held != written and not _equal(json.loads(held), json.loads(written)):
                    raise PatchRefused("a test has failed")
            case _:
                raise PatchRefused("it has an unknown operation")

    def _grown(self, octets: int) -> None:
        self._octets += octets
        if self._octets > 2 * LARGEST:
            raise PatchRefused("its result is too large")

    def _place(self, pointer: str) -> _Place:
        if pointer and not pointer.startswith("/"):
            raise PatchRefused("a pointer begins with a slash")
        if _WRONG_ESCAPE.search(pointer):
            raise PatchRefused("a pointer has a wrong escape")
        if pointer.count("/") > DEEPEST:
            raise PatchRefused("a pointer is too deep")
        value, place = self._text.value, _Place(None, "")
        for name in (one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]):
            if place.within is not None:
                value = place.within.items[_existing(place.within, place.name)].value
            content = value.content()
            if content is None:
                raise PatchRefused("there is nothing at a pointer")
            place = _Place(content, name)
        return place

    def _found(self, pointer: str) -> _Value:
        within, name = self._place(pointer)
        return self._text.value if within is None else within.items[_existing(within, name)].value

    def _add(self, path: str, written: str, *, last: bool = False) -> None:
        self._grown(len(written))
        within, name = self._place(path)
        value = _Value(written, self._effort)
        if within is None:
            self._text.value = value
        elif not within.is_object:
            place = len(within.items) if name == "-" else _index(name, len(within.items))
            within.insert(place, "", value, self._text.style)
        elif (held := within.place(name)) is not None:
            within.items[held].value = value
        else:
            place = len(within.items) if last else _member_place(within, name, self._effort)
            within.insert(place, name, value, self._text.style)

    def _remove(self, path: str) -> _Item:
        within, name = self._place(path)
        if within is None:
            raise PatchRefused("the whole text cannot be removed")
        return within.remove(_existing(within, name))


def _member(members: _Content, name: str) -> _Value:
    if (place := members.place(name)) is None:
        raise PatchRefused(f"an operation has no {name}")
    return members.items[place].value


def _string(members: _Content, name: str) -> str:
    written = _member(members, name).text
    if written is None or written[0] != '"':
        raise PatchRefused(f"the {name} of an operation is no text")
    return plain(written)


def _existing(content: _Content, name: str) -> int:
    place = content.place(name) if content.is_object else _index(name, len(content.items) - 1)
    if place is None:
        raise PatchRefused("there is nothing at a pointer")
    return place


def _member_place(content: _Content, name: str, effort: Effort) -> int:
    """Where a new member of an object is put: by its name where the names were in order, else last."""
    effort.spend(1 + len(content.items) // 4)
    names = [plain(one.key) for one in content.items]
    if len(names) > 1 and all(one < after for one, after in pairwise(names)):
        return bisect_left(names, name)
    return len(names)


def _index(name: str, most: int) -> int:
    if not _INDEX.match(name) or int(name) > most:
        raise PatchRefused("there is nothing at a pointer")
    return int(name)


def _equal(one: object, other: object) -> bool:
    """Whether two values are equal as JSON: `true` is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    are_numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return one == other and (type(one) is type(other) or are_numbers)


def make(old: bytes, new: bytes, effort: Effort | None = None) -> bytes | None:
    """A patch smaller than `new` that `apply` makes `new` of `old` by; None where there is none."""
    effort = effort or Effort()
    try:
        before, after = _JsonText(old, effort), _JsonText(new, effort)
        if (before.before, before.after) != (after.before, after.after):
            return None
        operations = _Making(before.style, effort).differing(before.value, after.value, "")
        if len(operations) > MOST_OPERATIONS:
            return None
        patch = ("[" + ",\n".join(operations) + "]\n").encode()
        return patch if len(patch) < len(new) and apply(old, patch, effort) == new else None
    except (PatchRefused, RecursionError):
        return None


_Change = tuple[list[str], _Content]
"""What makes one array or object of another: the operations on it and within it, and how it is written then."""


class _Making:
    def __init__(self, style: _JsonLayout, effort: Effort) -> None:
        self._style = style
        self._effort = effort

    def differing(self, old: _Value, new: _Value, path: str) -> list[str]:
        """The operations that make the one value of the other."""
        before, written = old.written(), new.written()
        if before == written:
            return []
        whole = _operation("replace", path, written)
        held, wanted = old.content(), new.content()
        if held is None or wanted is None or held.is_object is not wanted.is_object:
            return [whole]
        if not (held.items and wanted.items) or held.close != wanted.close:
            return [whole]
        change = self._members(held, wanted, path) if held.is_object else self._elements(held, wanted, path)
        if change is None:
            return [whole]
        operations, shell = change
        is_alike = shell.close == wanted.close and [one.shape for one in shell.items] == [
            one.shape for one in wanted.items
        ]
        self._effort.spend(1 + len(operations))
        return operations if is_alike and sum(map(len, operations)) < len(whole) else [whole]

    def _members(self, held: _Content, wanted: _Content, path: str) -> _Change | None:
        if any(len({plain(one.key) for one in content.items}) < len(content.items) for content in (held, wanted)):
            return None  # a name comes twice
        shell, operations = held.shell(), list[str]()
        for place in range(len(held.items) - 1, -1, -1):
            name = plain(held.items[place].key)
            if wanted.place(name) is None:
                operations.append(_operation("remove", _below(path, name)))
                shell.remove(place)
        if not shell.items:
            return None
        for one in wanted.items:
            name = plain(one.key)
            there = held.place(name)
            if there is not None:
                operations += self.differing(held.items[there].value, one.value, _below(path, name))
            else:
                operations.append(_operation("add", _below(path, name), one.value.written()))
                shell.insert(_member_place(shell, name, self._effort), name, one.value, self._style)
        # Members are moved to the end, one after the other, from the first that is not in its place.
        order, names = ([plain(one.key) for one in some] for some in (shell.items, wanted.items))
        first = next((n for n, (one, other) in enumerate(zip(order, names, strict=True)) if one != other), len(names))
        for name in names[first:]:
            below = _below(path, name)
            operations.append(_operation("move", below, from_=below))
            shell.insert(len(shell.items) - 1, name, shell.remove(shell.place(name) or 0).value, self._style)
        return operations, shell

    def _elements(self, held: _Content, wanted: _Content, path: str) -> _Change | None:
        """Elements of a block are paired in their order; those left over come or go at its end."""
        old, new = ([one.value.written() for one in some.items] for some in (held, wanted))
        shell, operations = held.shell(), list[str]()
        for old_from, old_to, new_from, new_to in reversed(_blocks(old, new, self._effort)):
            pairs = min(old_to - old_from, new_to - new_from)
            for place in range(old_to - 1, old_from + pairs - 1, -1):
                operations.append(_operation("remove", f"{path}/{place}"))
                shell.remove(place)
            for place, one in enumerate(wanted.items[new_from + pairs : new_to], old_from + pairs):
                operations.append(_operation("add", f"{path}/{place}", one.value.written()))
                shell.insert(place, "", one.value, self._style)
            for place, one in enumerate(wanted.items[new_from : new_from + pairs], old_from):
                operations += self.differing(held.items[place].value, one.value, f"{path}/{place}")
        return (operations, shell) if shell.items else None


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _operation(name: str, path: str, value: str | None = None, *, from_: str | None = None) -> str:
    also = "" if from_ is None else f',"from":{json.dumps(from_)}'
    return f'{{"op":"{name}"{also},"path":{json.dumps(path)}' + ("}" if value is None else f',"value":{value}}}')
