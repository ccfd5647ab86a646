"""Applies a JSON Patch (RFC 6902) to a JSON text, which stays as it is written wherever the patch does not touch it.

Values of the patch are taken over as they are written in it. An object's new member comes last, save where the names
were in order: then it takes its place in that order. One that is moved comes last in any case, so that a move to where
it is makes it the last. The white space around what comes and goes is `Content`'s.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

from headwater.patches.faults import DEEPEST, LARGEST, MOST_OPERATIONS, Effort, PatchRefused
from headwater.patches.json.text_tree import Content, Item, JsonText, Value, plain

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
        place = len(within.items) if last else member_place(within, name, self._effort)
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


def member_place(content: Content, name: str, effort: Effort) -> int:
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
