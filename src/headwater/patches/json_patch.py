"""JSON Patch (RFC 6902) of texts as they are written: made such that applying it gives the new text octet by octet.

Values of a patch are taken over as they are written in it. An object's new member comes last, save where the names
were in order: then it takes its place in that order. One that is moved comes last in any case, so that a move to where
it is makes it the last. The white space around what comes and goes is `Content`'s. What no operation can write as it
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

from headwater.patches.json_text import Content, Item, JsonLayout, JsonText, Value, plain
from headwater.patches.registry import DEEPEST, LARGEST, MOST_OPERATIONS, Effort, PatchRefused

_MOST_EDITS: Final = 400
_MOST_PAIRS: Final = 200_000
"""Beyond so many items that only one array has, or pairs of equal ones, the parts that differ are taken as one."""


class _Block(NamedTuple):
    """Items `old_from` to `old_to` of the old sequence become `new_from` to `new_to` of the new one."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def _blocks(old: Sequence[str], new: Sequence[str], effort: Effort) -> list[_Block]:
    """What differs, in order; what is between is equal. Raises PatchRefused."""
    begin, shortest = 0, min(len(old), len(new))
    effort.spend(shortest // 4 + 1)
    while begin < shortest and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = _Block(begin, len(old) - end, begin, len(new) - end)
    if middle.old_from == middle.old_to or middle.new_from == middle.new_to:
        return [middle] if len(old) - begin - end or len(new) - begin - end else []
    a, b = old[middle.old_from : middle.old_to], new[middle.new_from : middle.new_to]
    held, wanted = Counter(a), Counter(b)
    pairs = sum(count * wanted[one] for one, count in held.items())
    effort.spend(len(a) + len(b) + 2 * pairs)
    if (held - wanted).total() + (wanted - held).total() > _MOST_EDITS or pairs > _MOST_PAIRS:
        return [middle]
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [_Block(i + begin, j + begin, m + begin, n + begin) for tag, i, j, m, n in matched if tag != "equal"]


_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_WRONG_ESCAPE = re.compile(r"~(?![01])")


class _Place(NamedTuple):
    """Where a pointer leads: the array or object, and the last name of the pointer. No `within`: the whole text."""

    within: Content | None
    name: str


def apply(old: bytes, patch: bytes, effort: Effort | None = None) -> bytes:
    """The octets that the patch makes of the old ones. Raises PatchRefused."""
    effort = effort or Effort()
    text = JsonText(old, effort)
    operations = JsonText(patch, effort).value.content(effort)
    if operations is None or operations.is_object:
        raise PatchRefused("a JSON Patch is an array")
    if len(operations.items) > MOST_OPERATIONS:
        raise PatchRefused("it has too many operations")
    applied = _Application(text, effort)
    try:
        for one in operations.items:
            applied.take(one.value)
        return text.octets(effort)
    except RecursionError as cause:
        raise PatchRefused("it is too deep") from cause


class _Application:
    """Does one operation after the other. `_octets` is how large the text can have become."""

    def __init__(self, text: JsonText, effort: Effort) -> None:
        self._text = text
        self._effort = effort
        self._octets = len(text.value.text or "")

    def take(self, operation: Value) -> None:
        """Do an operation. Raises PatchRefused."""
        effort = self._effort
        effort.spend(10)
        members = operation.content(effort)
        if members is None or not members.is_object:
            raise PatchRefused("an operation is an object")
        name, path = self._string(members, "op"), self._string(members, "path")
        match name:
            case "add":
                self._add(path, self._value(members))
            case "remove":
                self._remove(path)
            case "replace":
                self._replace(path, self._value(members))
            case "move":
                self._move(self._string(members, "from"), path)
            case "copy":
                self._add(path, self._found(self._string(members, "from")).written(effort))
            case "test":
                self._test(path, self._value(members))
            case _:
                raise PatchRefused("it has an unknown operation")

    def _string(self, members: Content, name: str) -> str:
        place = members.place(name, self._effort)
        written = None if place is None else members.items[place].value.text
        if written is None or written[0] != '"':
            raise PatchRefused(f"an operation has no {name}")
        return plain(written)

    def _value(self, members: Content) -> str:
        place = members.place("value", self._effort)
        if place is None:
            raise PatchRefused("an operation has no value")
        return members.items[place].value.written(self._effort)

    def _grown(self, octets: int) -> None:
        self._octets += octets
        if self._octets > 2 * LARGEST:
            raise PatchRefused("its result is too large")

    def _names(self, pointer: str) -> list[str]:
        if pointer and not pointer.startswith("/"):
            raise PatchRefused("a pointer begins with a slash")
        if _WRONG_ESCAPE.search(pointer):
            raise PatchRefused("a pointer has a wrong escape")
        if pointer.count("/") > DEEPEST:
            raise PatchRefused("a pointer is too deep")
        names = [one.replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]]
        self._effort.spend(1 + len(names))
        return names

    def _place(self, pointer: str) -> _Place:
        names = self._names(pointer)
        if not names:
            return _Place(None, "")
        value = self._text.value
        for name in names[:-1]:
            value = self._item(value, name).value
        content = value.content(self._effort)
        if content is None:
            raise PatchRefused("there is nothing at a pointer")
        return _Place(content, names[-1])

    def _item(self, value: Value, name: str) -> Item:
        content = value.content(self._effort)
        if content is None:
            raise PatchRefused("there is nothing at a pointer")
        return content.items[self._existing(content, name)]

    def _existing(self, content: Content, name: str) -> int:
        place = content.place(name, self._effort) if content.is_object else _index(name, len(content.items) - 1)
        if place is None:
            raise PatchRefused("there is nothing at a pointer")
        return place

    def _found(self, pointer: str) -> Value:
        place = self._place(pointer)
        if place.within is None:
            return self._text.value
        return place.within.items[self._existing(place.within, place.name)].value

    def _add(self, path: str, written: str, *, last: bool = False) -> None:
        self._grown(len(written))
        within, name = self._place(path)
        if within is None:
            self._text.value = Value(written)
            return
        self._effort.spend(1 + len(within.items) // 100)
        if not within.is_object:
            place = len(within.items) if name == "-" else _index(name, len(within.items))
            if place is None:
                raise PatchRefused("there is nothing at a pointer")
            within.insert(place, "", Value(written), self._text.style)
            return
        held = within.place(name, self._effort)
        if held is not None:
            within.items[held].value = Value(written)
            return
        place = len(within.items) if last else _member_place(within, name, self._effort)
        within.insert(place, name, Value(written), self._text.style)

    def _remove(self, path: str) -> Item:
        within, name = self._place(path)
        if within is None:
            raise PatchRefused("the whole text cannot be removed")
        self._effort.spend(1 + len(within.items) // 100)
        return within.remove(self._existing(within, name))

    def _replace(self, path: str, written: str) -> None:
        self._grown(len(written))
        within, name = self._place(path)
        if within is None:
            self._text.value = Value(written)
        else:
            within.items[self._existing(within, name)].value = Value(written)

    def _move(self, from_: str, path: str) -> None:
        if path.startswith(f"{from_}/"):
            raise PatchRefused("a value cannot be moved into itself")
        if path == from_ and not (path and (within := self._place(path).within) and within.is_object):
            self._found(path)
            return
        self._add(path, self._remove(from_).value.written(self._effort), last=True)

    def _test(self, path: str, written: str) -> None:
        held = self._found(path).written(self._effort)
        self._effort.spend(1 + (len(held) + len(written)) // 20)
        if held != written and not _equal(json.loads(held), json.loads(written)):
            raise PatchRefused("a test has failed")


def _member_place(content: Content, name: str, effort: Effort) -> int:
    """Where a new member of an object is put: by its name where the names were in order, else last."""
    effort.spend(1 + len(content.items) // 4)
    names = [plain(one.key) for one in content.items]
    if len(names) > 1 and all(one < after for one, after in pairwise(names)):
        return bisect_left(names, name)
    return len(names)


def _index(name: str, most: int) -> int | None:
    return int(name) if _INDEX.match(name) and int(name) <= most else None


def _equal(one: object, other: object) -> bool:
    """Whether two values are equal as JSON: `true` is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other and (type(one) is type(other) or (_is_number(one) and _is_number(other)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def make(old: bytes, new: bytes, effort: Effort | None = None) -> bytes | None:
    """A patch smaller than `new` that `apply` makes `new` of `old` by; None where there is none."""
    effort = effort or Effort()
    try:
        before, after = JsonText(old, effort), JsonText(new, effort)
        if (before.before, before.after) != (after.before, after.after):
            return None
        operations = _Making(before.style, effort).differing(before.value, after.value, "")
        if len(operations) > MOST_OPERATIONS:
            return None
        patch = ("[" + ",\n".join(operations) + "]\n").encode()
        return patch if len(patch) < len(new) and apply(old, patch, effort) == new else None
    except (PatchRefused, RecursionError):
        return None


class _Change(NamedTuple):
    """What makes one array or object of another: the operations on it and within it, and how it is written then."""

    operations: list[str]
    shell: Content


class _Making:
    def __init__(self, style: JsonLayout, effort: Effort) -> None:
        self._style = style
        self._effort = effort

    def differing(self, old: Value, new: Value, path: str) -> list[str]:
        """The operations that make the one value of the other."""
        effort = self._effort
        before, written = old.written(effort), new.written(effort)
        if before == written:
            return []
        whole = _operation("replace", path, written)
        held, wanted = old.content(effort), new.content(effort)
        if held is None or wanted is None or held.is_object is not wanted.is_object:
            return [whole]
        if not (held.items and wanted.items) or held.close != wanted.close:
            return [whole]
        change = self._members(held, wanted, path) if held.is_object else self._elements(held, wanted, path)
        if change is None or not _is_written_alike(change.shell, wanted):
            return [whole]
        effort.spend(1 + len(change.operations))
        return change.operations if sum(map(len, change.operations)) < len(whole) else [whole]

    def _members(self, held: Content, wanted: Content, path: str) -> _Change | None:
        names = [plain(one.key) for one in wanted.items]
        if not self._is_plain(held) or not self._is_plain(wanted):
            return None
        shell, operations = held.shell(), list[str]()
        for place in range(len(held.items) - 1, -1, -1):
            name = plain(held.items[place].key)
            if wanted.place(name, self._effort) is None:
                operations.append(_operation("remove", _below(path, name)))
                self._effort.spend(1 + len(shell.items) // 100)
                shell.remove(place)
        if not shell.items:
            return None
        for name, one in zip(names, wanted.items, strict=True):
            there = held.place(name, self._effort)
            if there is not None:
                operations += self.differing(held.items[there].value, one.value, _below(path, name))
            else:
                operations.append(_operation("add", _below(path, name), one.value.written(self._effort)))
                shell.insert(_member_place(shell, name, self._effort), name, one.value, self._style)
        self._order(shell, names, operations, path)
        return _Change(operations, shell)

    def _order(self, shell: Content, names: list[str], operations: list[str], path: str) -> None:
        """Move the members to the end, one after the other, from the first that is not in its place."""
        order = [plain(one.key) for one in shell.items]
        first = next((n for n, (one, other) in enumerate(zip(order, names, strict=True)) if one != other), len(names))
        for name in names[first:]:
            below = _below(path, name)
            operations.append(_operation("move", below, from_=below))
            self._effort.spend(1 + len(shell.items) // 10)
            place = shell.place(name, self._effort)
            assert place is not None
            shell.insert(len(shell.items) - 1, name, shell.remove(place).value, self._style)

    def _is_plain(self, content: Content) -> bool:
        """Whether no name comes twice."""
        try:
            content.place("", self._effort)
        except PatchRefused as refused:
            self._effort.spend(0)
            if "twice" in str(refused):
                return False
            raise
        return True

    def _elements(self, held: Content, wanted: Content, path: str) -> _Change | None:
        effort = self._effort
        old = [one.value.written(effort) for one in held.items]
        new = [one.value.written(effort) for one in wanted.items]
        shell, operations = held.shell(), list[str]()
        for block in reversed(_blocks(old, new, effort)):
            self._block(block, held, wanted, (shell, operations), path)
        return _Change(operations, shell) if shell.items else None

    def _block(self, block: _Block, held: Content, wanted: Content, into: tuple[Content, list[str]], path: str) -> None:
        """Elements of a block are paired in their order; those left over come or go at its end."""
        shell, operations = into
        pairs = min(block.old_to - block.old_from, block.new_to - block.new_from)
        for place in range(block.old_to - 1, block.old_from + pairs - 1, -1):
            operations.append(_operation("remove", f"{path}/{place}"))
            self._effort.spend(1 + len(shell.items) // 100)
            shell.remove(place)
        for number, one in enumerate(wanted.items[block.new_from + pairs : block.new_to]):
            place = block.old_from + pairs + number
            operations.append(_operation("add", f"{path}/{place}", one.value.written(self._effort)))
            self._effort.spend(1 + len(shell.items) // 100)
            shell.insert(place, "", one.value, self._style)
        for number in range(pairs):
            place = block.old_from + number
            after = wanted.items[block.new_from + number].value
            operations += self.differing(held.items[place].value, after, f"{path}/{place}")


def _is_written_alike(one: Content, other: Content) -> bool:
    if one.close != other.close or len(one.items) != len(other.items):
        return False
    return all(mine.shape == its.shape for mine, its in zip(one.items, other.items, strict=True))


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _operation(name: str, path: str, value: str | None = None, *, from_: str | None = None) -> str:
    also = "" if from_ is None else f',"from":{json.dumps(from_)}'
    return f'{{"op":"{name}"{also},"path":{json.dumps(path)}' + ("}" if value is None else f',"value":{value}}}')
