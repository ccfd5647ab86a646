"""Applies an XML Patch (RFC 5261, RFC 7351) to an XML text, which stays as it is written where it is not touched.

What the patch adds is taken over as it is written in it. Where a prefix there means something else than in the
document, the patch is refused: names are not written anew (RFC 5261, 4.2.2 has how that might be done).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headwater.patches.faults import LARGEST, MOST_ATTRIBUTES, MOST_OPERATIONS, Effort, PatchRefused
from headwater.patches.xml.selectors import XML_NAMESPACE, Target, find, local_attribute
from headwater.patches.xml.text_tree import TEXT, Attribute, Element, Leaf, Node, Scope, XmlText

NAMESPACE = "urn:ietf:rfc:7351"
_NAMES = re.compile(r"<([^\s<>/=!?\"'&]+)|\s([^\s<>/=!?\"'&]+)\s*=\s*[\"']")
_LEAVES = re.compile(r"<!\[CDATA\[.*?\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_BLANK = re.compile(r"\s+\Z")

_Change = Callable[[Attribute], Attribute | None]
"""What becomes of an attribute; None: it goes."""


def apply(old: bytes, patch: bytes, effort: Effort | None = None) -> bytes:
    """The octets that the patch makes of the old ones. Raises PatchRefused."""
    effort = effort or Effort()
    text, root = XmlText(old, effort), XmlText(patch, effort).root
    outer = root.scope({"xml": XML_NAMESPACE}, effort)
    if _local(root, outer) != "patch":
        raise PatchRefused("it is no XML Patch")
    operations = [one for one in root.children if isinstance(one, Element)]
    if len(operations) > MOST_OPERATIONS:
        raise PatchRefused("it has too many operations")
    applied = _Application(text, effort)
    for one in operations:
        applied.take(one, one.scope(outer, effort))
    try:
        return text.octets()
    except RecursionError as cause:
        raise PatchRefused("it is too deep") from cause


def _local(element: Element, scope: Scope) -> str:
    prefix, _, local = element.name.rpartition(":")
    if scope.get(prefix) != NAMESPACE:
        raise PatchRefused("an element is not of the namespace of XML Patch")
    return local


class _Application:
    """Does one operation after the other."""

    def __init__(self, text: XmlText, effort: Effort) -> None:
        self._text = text
        self._effort = effort
        self._octets = 0

    def take(self, operation: Element, names: Scope) -> None:
        """Do an operation. Raises PatchRefused."""
        told = {one.name: one.written for one in operation.attributes(self._effort)}
        target = find(self._text.root, _unescaped(told.get("sel", "")), names, self._effort)
        self._grown(operation)
        name = _local(operation, names)
        if name == "add" and "type" in told:
            self._add_attribute(target, told["type"], operation, names)
        elif name == "add":
            self._add(target, told.get("pos", "append"), operation, names)
        elif name == "replace":
            self._replace(target, operation, names)
        elif name == "remove":
            self._remove(target, told.get("ws", ""))
        else:
            raise PatchRefused("it has an unknown operation")

    def _grown(self, operation: Element) -> None:
        self._octets += len(operation.source)
        self._effort.spend(10 + len(operation.source) // 20)
        if self._octets > LARGEST:
            raise PatchRefused("its result is too large")

    def _contents(self, operation: Element, names: Scope, scope: Scope) -> list[Node]:
        """What an operation brings. Raises PatchRefused where its names would mean something else in the document."""
        used: set[str] = set()
        bare = _LEAVES.sub("", "".join(source for one in operation.children for source in one.pieces()))
        for found in _NAMES.finditer(bare):
            tag, attribute = found.groups("")
            prefix, colon, _ = (tag or attribute).partition(":")
            if tag or (colon and prefix != "xmlns"):
                used.add(prefix if colon else "")
        if any(names.get(prefix, "") != scope.get(prefix, "") for prefix in used):
            raise PatchRefused("a prefix means something else in the document")
        return operation.children

    def _add(self, target: Target, place: str, operation: Element, names: Scope) -> None:
        node = target.node
        if node is None:
            raise PatchRefused("nothing can be added there")
        if place in ("append", "prepend"):
            if not isinstance(node, Element):
                raise PatchRefused("nothing can be added there")
            brought = self._contents(operation, names, node.scope(target.scope, self._effort))
            node.open()
            at = 0 if place == "prepend" else len(node.children)
            self._put(node, at, at, brought)
        elif place in ("before", "after") and target.within:
            parent = target.within[-1]
            at = _place(parent, node) + (place == "after")
            self._put(parent, at, at, self._contents(operation, names, target.scope))
        else:
            raise PatchRefused("nothing can be added there")

    def _put(self, parent: Element, from_: int, to: int, brought: list[Node]) -> None:
        self._effort.spend(1 + len(parent.children) // 4)
        parent.children[from_:to] = brought
        parent.settle(self._effort)

    def _add_attribute(self, target: Target, type_: str, operation: Element, names: Scope) -> None:
        element = target.node
        if not isinstance(element, Element):
            raise PatchRefused("nothing can be added there")
        if type_.startswith("namespace::"):
            name = f"xmlns:{type_.removeprefix('namespace::')}"
        elif type_.startswith("@"):
            name = local_attribute(type_[1:], names, element.scope(target.scope, self._effort))
        else:
            raise PatchRefused("nothing can be added there")
        own = element.attributes(self._effort)
        if len(own) >= MOST_ATTRIBUTES:
            raise PatchRefused("an element has too many attributes")
        if any(one.name == name for one in own):
            raise PatchRefused("there is such an attribute already")
        value = _value(operation)
        quote = '"' if '"' not in value or "'" in value else "'"
        element.set_attributes([*own, Attribute(" ", name, "=", _quoted(value, quote))], self._effort)

    def _replace(self, target: Target, operation: Element, names: Scope) -> None:
        if target.node is None:
            value = _value(operation)
            self._set(target, lambda one: one._replace(quoted=_quoted(value, one.quoted[0])))
            return
        brought = self._contents(operation, names, target.scope)
        if target.node.kind == TEXT:
            if any(one.kind != TEXT for one in brought):
                raise PatchRefused("a text is replaced by a text")
        elif [one.kind for one in brought if one.kind != TEXT or one.kind == target.node.kind] != [target.node.kind]:
            raise PatchRefused("a node is replaced by one of its kind")
        brought = [one for one in brought if one.kind == target.node.kind]
        if not target.within:
            (self._text.root,) = (one for one in brought if isinstance(one, Element))
            return
        place = _place(target.within[-1], target.node)
        self._put(target.within[-1], place, place + 1, brought)

    def _set(self, target: Target, change: _Change) -> None:
        element = target.within[-1]
        attributes = (change(one) if one.name == target.attribute else one for one in element.attributes(self._effort))
        element.set_attributes([one for one in attributes if one is not None], self._effort)

    def _remove(self, target: Target, ws: str) -> None:
        if target.node is None:
            self._set(target, lambda _one: None)
            return
        if not target.within:
            raise PatchRefused("the root element cannot be removed")
        parent = target.within[-1]
        place = _place(parent, target.node)
        from_, to = place, place + 1
        if ws in ("before", "both"):
            from_ -= _is_blank(parent, place - 1)
        if ws in ("after", "both"):
            to += _is_blank(parent, place + 1)
        self._put(parent, from_, to, [])


def _place(parent: Element, node: Node) -> int:
    return next(number for number, one in enumerate(parent.children) if one is node)


def _is_blank(parent: Element, place: int) -> bool:
    """Whether there is white space to go with a node. Raises PatchRefused where there is none (RFC 5261, 4.5)."""
    node = parent.children[place] if 0 <= place < len(parent.children) else None
    if not isinstance(node, Leaf) or node.kind != TEXT or not _BLANK.match(node.written):
        raise PatchRefused("there is no white space to remove")
    return True


def _value(operation: Element) -> str:
    """The value of an attribute that an operation brings, as it is written."""
    if any(one.kind != TEXT for one in operation.children):
        raise PatchRefused("an attribute has text alone")
    value = "".join(source for one in operation.children for source in one.pieces())
    if "<" in value:
        raise PatchRefused("an attribute has text alone")
    return value


def _quoted(value: str, quote: str) -> str:
    for character, reference in ((quote, "&quot;" if quote == '"' else "&apos;"), ("\t", "&#9;"), ("\n", "&#10;")):
        value = value.replace(character, reference)
    return f"{quote}{value}{quote}"


def _unescaped(written: str) -> str:
    for reference, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
        written = written.replace(reference, character)
    return written
