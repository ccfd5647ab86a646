"""Makes an XML Patch (RFC 5261, RFC 7351) of two XML texts, such that applying it gives the second one octet by octet.

Nodes are named by their place among their siblings, which needs no names. What no operation can write as it is written
in the new text (the white space within tags, namespaces) is told by replacing the element around it.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from headwater.patches.faults import MOST_OPERATIONS, Effort, PatchRefused
from headwater.patches.sequence_diff import Block, blocks
from headwater.patches.xml.applying import NAMESPACE, apply
from headwater.patches.xml.selectors import XML_NAMESPACE
from headwater.patches.xml.text_tree import (
    COMMENT,
    INSTRUCTION,
    TEXT,
    Attribute,
    Element,
    Scope,
    XmlText,
    source_of,
    written_tag,
)

_PREFIX = re.compile(r"[<\s]([^\s<>/=!?\"'&:]+):[^\s<>/=!?\"'&]")
_SELECTED = {TEXT: "text()", COMMENT: "comment()", INSTRUCTION: "processing-instruction()"}
_CHANGED_BY_READING = re.compile(r"[\t\r\n]")


def make(old: bytes, new: bytes, effort: Effort | None = None) -> bytes | None:
    """A patch smaller than `new` that `apply` makes `new` of `old` by; None where there is none."""
    effort = effort or Effort()
    try:
        before, after = XmlText(old, effort), XmlText(new, effort)
        if (before.before, before.after) != (after.before, after.after):
            return None
        for is_coarse in (False, True):
            making = _Making(_free_prefix(old, new), effort, is_coarse=is_coarse)
            operations = making.differing(before.root, after.root, "/*", {"xml": XML_NAMESPACE})
            patch = making.document(operations)
            if len(operations) <= MOST_OPERATIONS and len(patch) < len(new) and _makes(old, patch, new, effort):
                return patch
    except (PatchRefused, RecursionError):
        pass
    return None


def _makes(old: bytes, patch: bytes, new: bytes, effort: Effort) -> bool:
    try:
        return apply(old, patch, effort) == new
    except PatchRefused:
        return False


def _free_prefix(old: bytes, new: bytes) -> str:
    """A prefix that neither text has."""
    number = 0
    while f"p{number or ''}:".encode() in old or f"p{number or ''}:".encode() in new:
        number += 1
    return f"p{number or ''}"


class _Pair(NamedTuple):
    """An element before and after, its selector, and the namespaces that hold in it."""

    old: Element
    new: Element
    selector: str
    scope: Scope


class _Making:
    """`is_coarse`: an element in which anything comes or goes is replaced."""

    def __init__(self, prefix: str, effort: Effort, *, is_coarse: bool) -> None:
        self._prefix = prefix
        self._effort = effort
        self._is_coarse = is_coarse

    def document(self, operations: list[str]) -> bytes:
        """The patch."""
        prefix = self._prefix
        body = "".join(f"\n{one}" for one in operations)
        return f'<{prefix}:patch xmlns:{prefix}="{NAMESPACE}">{body}\n</{prefix}:patch>\n'.encode()

    def differing(self, old: Element, new: Element, selector: str, outer: Scope) -> list[str]:
        """The operations that make the one element of the other."""
        before, after = old.source, new.source
        self._effort.spend(1 + len(after) // 1_000)
        if before == after:
            return []
        whole = self._operation("replace", selector, after, outer)
        if old.name != new.name or old.end != new.end or bool(old.children) is not bool(new.children):
            return [whole]
        pair = _Pair(old, new, selector, old.scope(outer, self._effort))
        attributes = self._attributes(pair)
        if attributes is None:
            return [whole]
        children = self._children(pair)
        if children is None:
            return [whole]
        operations = [*children, *attributes]
        return operations if sum(map(len, operations)) < len(whole) else [whole]

    def _attributes(self, pair: _Pair) -> list[str] | None:
        """The operations on the attributes; None where they do not lead to the tag as it is written."""
        if pair.old.tag == pair.new.tag:
            return []
        held = {one.name: one for one in pair.old.attributes(self._effort)}
        wanted = {one.name: one for one in pair.new.attributes(self._effort)}
        operations: list[str] = []
        shell: list[Attribute] = []
        for name, one in held.items():
            after = wanted.get(name)
            if after is None:
                operations.append(self._operation("remove", f"{pair.selector}/@{name}", None, pair.scope))
            else:
                shell.append(one._replace(quoted=after.quoted))
                if after.written != one.written:
                    written = after.written
                    operations.append(self._operation("replace", f"{pair.selector}/@{name}", written, pair.scope))
        for name, after in wanted.items():
            if name not in held:
                shell.append(Attribute(" ", name, "=", after.quoted))
                also = f' type="@{name}"'
                operations.append(self._operation("add", pair.selector, after.written, pair.scope, also))
        names = {*held} ^ {*wanted} | {one.name for one in shell if one.quoted != held.get(one.name, one).quoted}
        changed = "".join(wanted[name].written for name in names if name in wanted)
        if any(name.partition(":")[0] == "xmlns" for name in names) or _CHANGED_BY_READING.search(changed):
            return None
        return operations if written_tag(pair.old, shell, self._effort) == pair.new.tag else None

    def _children(self, pair: _Pair) -> list[str] | None:
        effort = self._effort
        old = [source_of(one) for one in pair.old.children]
        new = [source_of(one) for one in pair.new.children]
        effort.spend(1 + (len(old) + len(new)) // 2)
        operations: list[str] = []
        for block in reversed(blocks(old, new, effort)):
            made = self._block(pair, block)
            if made is None:
                return None
            operations += made
        return operations

    def _block(self, pair: _Pair, block: Block) -> list[str] | None:
        """Children of one kind are paired in their order; those left over come or go after them."""
        before = pair.old.children[block.old_from : block.old_to]
        after = pair.new.children[block.new_from : block.new_to]
        pairs = len(list(takewhile(lambda two: two[0].kind == two[1].kind, zip(before, after, strict=False))))
        if self._is_coarse and pairs < max(len(before), len(after)):
            return None
        operations: list[str] = []
        if after[pairs:]:
            place = self._place(pair, block.old_to)
            if place is None:
                return None
            selector, position = place
            written = "".join(map(source_of, after[pairs:]))
            operations.append(self._operation("add", selector, written, pair.scope, position))
        gone = range(block.old_to - 1, block.old_from + pairs - 1, -1)
        operations += [self._operation("remove", self._selector(pair, one), None, pair.scope) for one in gone]
        for number in range(pairs - 1, -1, -1):
            one, other = before[number], after[number]
            selector = self._selector(pair, block.old_from + number)
            if isinstance(one, Element) and isinstance(other, Element):
                operations += self.differing(one, other, selector, pair.scope)
            else:
                operations.append(self._operation("replace", selector, source_of(other), pair.scope))
        return operations

    def _place(self, pair: _Pair, place: int) -> tuple[str, str] | None:
        """Where something is added before the child at `place`: beside a child that is no text, first or last."""
        children = pair.old.children
        if place and children[place - 1].kind != TEXT:
            return self._selector(pair, place - 1), ' pos="after"'
        if place == len(children):
            return pair.selector, ""
        if children[place].kind != TEXT:
            return self._selector(pair, place), ' pos="before"'
        return (pair.selector, ' pos="prepend"') if not place else None

    def _selector(self, pair: _Pair, number: int) -> str:
        children = pair.old.children
        self._effort.spend(1 + number // 10)
        kind = children[number].kind
        place = sum(one.kind == kind for one in children[: number + 1])
        return f"{pair.selector}/{_SELECTED.get(kind, '*')}[{place}]"

    def _operation(self, name: str, selector: str, content: str | None, scope: Scope, also: str = "") -> str:
        """An operation with the namespaces that its selector and its content have."""
        prefix = self._prefix
        declared = "".join(f" xmlns:{one}={quoteattr(scope[one])}" for one in _prefixes(selector, content, scope))
        if scope.get("") and content is not None and "<" in content:
            declared += f" xmlns={quoteattr(scope[''])}"
        head = f"{prefix}:{name}{declared} sel={quoteattr(selector)}{also}"
        return f"<{head}/>" if content is None else f"<{head}>{content}</{prefix}:{name}>"


def _prefixes(selector: str, content: str | None, scope: Scope) -> list[str]:
    attribute = selector.rpartition("@")[2] if "@" in selector else ""
    used = {attribute.partition(":")[0]} if ":" in attribute else set[str]()
    used.update(_PREFIX.findall(content or ""))
    return sorted(one for one in used if one in scope and one not in ("", "xml"))
