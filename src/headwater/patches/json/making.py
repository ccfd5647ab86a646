"""Makes a JSON Patch (RFC 6902) of two JSON texts, such that applying it gives the second one octet by octet.

What no operation can write as it is written in the new text (white space, the order of names) is told by replacing the
array or object around it.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from headwater.patches.faults import MOST_OPERATIONS, Effort, PatchRefused
from headwater.patches.json.applying import apply, member_place
from headwater.patches.json.text_tree import Content, JsonLayout, JsonText, Value, plain
from headwater.patches.sequence_diff import Block, blocks


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
                shell.insert(member_place(shell, name, self._effort), name, one.value, self._style)
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
        for block in reversed(blocks(old, new, effort)):
            self._block(block, held, wanted, (shell, operations), path)
        return _Change(operations, shell) if shell.items else None

    def _block(self, block: Block, held: Content, wanted: Content, into: tuple[Content, list[str]], path: str) -> None:
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
