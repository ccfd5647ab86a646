"""JSON Patch (RFC 6902) of texts that a program has written: applying what is made gives the new text octet by octet.

A text has patches where it is the regular serialisation of its value in one of a few layouts. Then operations on the
value are enough: the result is serialised in the same layout. A text that was laid out by hand, has numbers or escapes
in another form, or a name twice has no patches: it is transferred whole.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from headwater.patches import DEEPEST, LARGEST, MOST_OPERATIONS, MOST_VALUES, PatchRefused

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# texts and their layouts

_BOM = "\ufeff"
_INDENTED = re.compile(r"[\[{]\n(\t| {1,2}| {4})(?! )")
_ON_ONE_LINE: Final = ((None, (",", ":")), (None, (", ", ": ")))


class _Layout(NamedTuple):
    """How a text is written. `before` and `after` stand around its value: a byte order mark, ends of lines."""

    before: str
    after: str
    indent: str | None
    separators: tuple[str, str]
    is_sorted: bool
    is_ascii: bool

    def body(self, value: Json) -> str:
        """The text of a value. Raises ValueError for a number that is not finite, PatchRefused for too long a text."""
        encoder = json.JSONEncoder(
            indent=self.indent,
            separators=self.separators,
            sort_keys=self.is_sorted,
            ensure_ascii=self.is_ascii,
            allow_nan=False,
        )
        # a deep value is mostly indentation: of such a text no more is made than it may have
        pieces, left = [], LARGEST
        for piece in [encoder.encode(value)] if self.indent is None else encoder.iterencode(value):
            left -= len(piece)
            if left < 0:
                raise PatchRefused("it is too large")
            pieces.append(piece)
        return "".join(pieces)


def _read(octets: bytes) -> tuple[Json, _Layout]:
    """The value of a text, and its layout. Names are in order where those of all objects are. Raises PatchRefused."""
    text = _decoded(octets)
    body = text.removeprefix(_BOM).rstrip("\r\n")
    value = _loaded(body)
    before, after = _BOM if text.startswith(_BOM) else "", text[len(text.rstrip("\r\n")) :]
    found = _INDENTED.match(body)
    for indent, separators in [(found[1], (",", ": "))] if found else _ON_ONE_LINE:
        for is_sorted in (True, False):
            layout = _Layout(before, after, indent, separators, is_sorted, body.isascii())
            try:
                if layout.body(value) == body:
                    return value, layout
            except (ValueError, RecursionError) as cause:
                raise PatchRefused("it has a value that cannot be written") from cause
    raise PatchRefused("it has no known layout")


def _decoded(octets: bytes) -> str:
    if len(octets) > LARGEST:
        raise PatchRefused("it is too large")
    try:
        return octets.decode()
    except UnicodeDecodeError as cause:
        raise PatchRefused("it is not in UTF-8") from cause


def _loaded(text: str) -> Json:
    """The value of a text. Raises PatchRefused for what is no JSON, has too many values, or a name twice."""
    if _separators(text) > MOST_VALUES:
        raise PatchRefused("it has too many values")
    try:
        value: Json = json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError) as cause:
        raise PatchRefused("it is no JSON") from cause
    return value


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise PatchRefused("an object has the same name twice")
    return members


def _separators(text: str) -> int:
    """At least as many as a text has values, but for one."""
    return sum(text.count(one) for one in ",[{")


# a patch is applied

_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_NO_POINTER = re.compile(r"\A[^/]|~(?![01])")


def apply(old: bytes, patch: bytes) -> bytes:
    """The octets that the patch makes of the old ones. Raises PatchRefused.

    Characters beyond ASCII are escaped unless the old text or the patch has some that are not.
    """
    value, layout = _read(old)
    operations = _loaded(_decoded(patch))
    if not isinstance(operations, list) or len(operations) > MOST_OPERATIONS:
        raise PatchRefused("it is no array, or has too many operations")
    patched = _PatchedValue(value)
    layout = layout._replace(is_ascii=layout.is_ascii and patch.isascii())
    try:
        for one in operations:
            patched.take(one)
        return (layout.before + layout.body(patched.root[0]) + layout.after).encode()
    except (ValueError, RecursionError) as cause:
        raise PatchRefused("its result cannot be written") from cause


class _PatchedValue:
    """A value that operations change; it is the one element of `root`, so that it has a place as all others have."""

    def __init__(self, value: Json) -> None:
        self.root: list[Json] = [value]
        self._copied_octets = self._copied_values = 0

    def take(self, operation: Json) -> None:
        """Do an operation. Raises PatchRefused."""
        match operation:
            case {"op": "add", "path": str(path), "value": value}:
                self._add(path, value)
            case {"op": "remove", "path": str(path)}:
                self._remove(path)
            case {"op": "replace", "path": str(path), "value": value}:
                self._replace(path, value)
            case {"op": "move", "from": str(from_), "path": str(path)} if not path.startswith(f"{from_}/"):
                self._add(path, self._remove(from_))
            case {"op": "copy", "from": str(from_), "path": str(path)}:
                self._add(path, self._copy(from_))
            case {"op": "test", "path": str(path), "value": value}:
                if not _equal(_value(*self._place(path)), value):
                    raise PatchRefused("a test has failed")
            case _:
                raise PatchRefused("an operation is malformed")

    def _place(self, pointer: str) -> tuple[Json, str]:
        """The value that a pointer leads into, and the name or index in it, where nothing has to be."""
        if _NO_POINTER.search(pointer) or pointer.count("/") > DEEPEST:
            raise PatchRefused("a pointer is malformed or too deep")
        within: Json = self.root
        name = "0"
        for part in pointer.split("/")[1:]:
            within, name = _value(within, name), part.replace("~1", "/").replace("~0", "~")
        return within, name

    def _add(self, path: str, value: Json) -> None:
        within, name = self._place(path)
        if within is self.root:
            self.root[0] = value
        elif isinstance(within, dict):
            within[name] = value
        elif isinstance(within, list) and name == "-":
            within.append(value)
        elif isinstance(within, list) and _INDEX.match(name) and int(name) <= len(within):
            within.insert(int(name), value)
        else:
            raise PatchRefused("there is nothing at a pointer")

    def _replace(self, path: str, value: Json) -> None:
        within, name = self._place(path)
        _value(within, name)
        if isinstance(within, dict):
            within[name] = value
        elif isinstance(within, list):
            within[int(name)] = value

    def _remove(self, path: str) -> Json:
        within, name = self._place(path)
        if within is self.root:
            raise PatchRefused("the whole text cannot be removed")
        value = _value(within, name)
        if isinstance(within, dict):
            del within[name]
        elif isinstance(within, list):
            del within[int(name)]
        return value

    def _copy(self, path: str) -> Json:
        text = _text(_value(*self._place(path)))
        self._copied_octets += len(text)
        self._copied_values += _separators(text)
        if self._copied_octets > LARGEST or self._copied_values > MOST_VALUES:
            raise PatchRefused("its result is too large")
        return _loaded(text)


def _value(within: Json, name: str) -> Json:
    """What is there in an array or object. Raises PatchRefused."""
    if isinstance(within, dict) and name in within:
        return within[name]
    if isinstance(within, list) and _INDEX.match(name) and int(name) < len(within):
        return within[int(name)]
    raise PatchRefused("there is nothing at a pointer")


def _equal(one: Json, other: Json) -> bool:
    """Whether two values are equal as JSON: `true` is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


# a patch is made

_Operation = dict[str, Json]


def make(old: bytes, new: bytes) -> bytes | None:
    """A patch smaller than `new` that `apply` makes `new` of `old` by; None where there is none."""
    try:
        before, layout = _read(old)
        after, wanted = _read(new)
        operations = _differences(before, after, "", is_sorted=layout.is_sorted)
        patch = json.dumps(operations, separators=(",", ":"), ensure_ascii=wanted.is_ascii).encode()
        return patch if len(patch) < len(new) and apply(old, patch) == new else None
    except (PatchRefused, ValueError, RecursionError):
        return None


def _text(value: object, *, is_sorted: bool = False) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=is_sorted)


def _differences(old: Json, new: Json, path: str, *, is_sorted: bool) -> list[_Operation]:
    """The operations that make one value of the other; `is_sorted`: the order of names follows from the names."""
    if _text(old, is_sorted=is_sorted) == _text(new, is_sorted=is_sorted):
        return []
    whole: list[_Operation] = [{"op": "replace", "path": path, "value": new}]
    if path.count("/") == DEEPEST:
        return whole
    if isinstance(old, dict) and isinstance(new, dict):
        operations = _member_differences(old, new, path, is_sorted=is_sorted)
    elif isinstance(old, list) and isinstance(new, list):
        operations = _element_differences(old, new, path, is_sorted=is_sorted)
    else:
        return whole
    return operations if len(_text(operations)) < len(_text(whole)) else whole


def _member_differences(old: dict[str, Json], new: dict[str, Json], path: str, *, is_sorted: bool) -> list[_Operation]:
    """A new member comes last, and so does one that is moved from its place to itself: that puts them in order."""
    operations: list[_Operation] = [{"op": "remove", "path": _below(path, name)} for name in old if name not in new]
    for name, value in new.items():
        below = _below(path, name)
        if name in old:
            operations += _differences(old[name], value, below, is_sorted=is_sorted)
        else:
            operations.append({"op": "add", "path": below, "value": value})
    if not is_sorted:
        order = [*(name for name in old if name in new), *(name for name in new if name not in old)]
        first = next((n for n, (one, name) in enumerate(zip(order, new, strict=True)) if one != name), len(order))
        places = [_below(path, name) for name in list(new)[first:]]
        operations += [{"op": "move", "from": place, "path": place} for place in places]
    return operations


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"


def _element_differences(old: list[Json], new: list[Json], path: str, *, is_sorted: bool) -> list[_Operation]:
    """Elements of a block are paired in their order; those left over come or go at its end."""
    operations: list[_Operation] = []
    texts = ([_text(one, is_sorted=is_sorted) for one in some] for some in (old, new))
    for old_from, old_to, new_from, new_to in reversed(_blocks(*texts)):
        pairs = min(old_to - old_from, new_to - new_from)
        left = range(old_to - 1, old_from + pairs - 1, -1)
        operations += [{"op": "remove", "path": f"{path}/{place}"} for place in left]
        more = enumerate(new[new_from + pairs : new_to], old_from + pairs)
        operations += [{"op": "add", "path": f"{path}/{place}", "value": value} for place, value in more]
        for n in range(pairs):
            below = f"{path}/{old_from + n}"
            operations += _differences(old[old_from + n], new[new_from + n], below, is_sorted=is_sorted)
    return operations


_MOST_EDITS: Final = 400
_MOST_PAIRS: Final = 200_000
"""Beyond so many items that only one array has, or pairs of equal ones, the parts that differ are taken as one."""


def _blocks(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """What differs, in order: from and to where in the old one, and in the new one."""
    begin, shortest = 0, min(len(old), len(new))
    while begin < shortest and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    a, b = old[begin : len(old) - end], new[begin : len(new) - end]
    held, wanted = Counter(a), Counter(b)
    pairs = sum(count * wanted[one] for one, count in held.items())
    if (held - wanted).total() + (wanted - held).total() > _MOST_EDITS or pairs > _MOST_PAIRS:
        return [(begin, begin + len(a), begin, begin + len(b))]
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [(i + begin, j + begin, m + begin, n + begin) for tag, i, j, m, n in matched if tag != "equal"]
