"""An XML text as a tree that keeps how it is written: quotes, white space, references and CDATA stay as they are.

Nothing is expanded, so no entity can grow: references within texts are never looked into, and a DTD is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from typing import Final, NamedTuple
from xml.parsers import expat

from headwater.patches.faults import DEEPEST, LARGEST, MOST_ATTRIBUTES, Effort, PatchRefused

_NAME = r"[^\s<>/=!?\"'&]+"
_TOKEN = re.compile(
    r"(?P<comment><!--.*?-->)|(?P<pi><\?.*?\?>)|(?P<cdata><!\[CDATA\[.*?\]\]>)"
    rf"|(?P<end></{_NAME}\s*>)|(?P<start><{_NAME}(?:\s+{_NAME}\s*=\s*(?:\"[^\"]*\"|'[^']*'))*+\s*/?>)|(?P<text>[^<]+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(rf"(\s+)({_NAME})(\s*=\s*)(\"[^\"]*\"|'[^']*')")
_TAG_NAME = re.compile(_NAME)
_ENCODING = re.compile(r"""<\?xml\s[^>]*?encoding\s*=\s*["']([^"']*)["']""")

TEXT: Final = "text"
COMMENT: Final = "comment"
INSTRUCTION: Final = "pi"
ELEMENT: Final = "element"

Scope = dict[str, str]
"""Namespaces by prefix; the default one has an empty prefix."""


class Leaf:
    """A text (with its CDATA sections), a comment or a processing instruction, as it is written."""

    __slots__ = ("kind", "written")

    def __init__(self, kind: str, written: str) -> None:
        self.kind, self.written = kind, written

    def pieces(self) -> Iterator[str]:
        """Its text."""
        yield self.written


class Attribute(NamedTuple):
    """An attribute as it is written: the white space before it, its name, the equals sign, its value with quotes."""

    lead: str
    name: str
    equals: str
    quoted: str

    @property
    def written(self) -> str:
        """The value without its quotes."""
        return self.quoted[1:-1]


class Element:
    """An element: its tags as they are written, and what is between them."""

    __slots__ = ("_start", "_stop", "_text", "children", "end", "kind", "name", "tag")

    def __init__(self, tag: str, text: str, start: int) -> None:
        self.kind = ELEMENT
        self.tag, self.end = tag, ""
        found = _TAG_NAME.match(tag, 1)
        assert found is not None
        self.name = found[0]
        self.children: list[Node] = []
        self._text, self._start, self._stop = text, start, start + len(tag)

    def close(self, end: str, stop: int) -> None:
        """Note its end tag."""
        self.end, self._stop = end, stop

    @property
    def source(self) -> str:
        """The whole element as it was read."""
        return self._text[self._start : self._stop]

    def pieces(self) -> Iterator[str]:
        """The whole element as it is by now."""
        yield self.tag
        for one in self.children:
            yield from one.pieces()
        yield self.end

    def attributes(self, effort: Effort) -> list[Attribute]:
        """Its attributes, as they are written."""
        found = _ATTRIBUTE.findall(self.tag)
        effort.spend(1 + 2 * len(found) + len(self.tag) // 1_000)
        return [Attribute(*one) for one in found]

    def set_attributes(self, attributes: list[Attribute], effort: Effort) -> None:
        """Write its tag with these; what is at the end of the tag stays."""
        self.tag = written_tag(self, attributes, effort)

    def scope(self, outer: Scope, effort: Effort) -> Scope:
        """The namespaces that hold in it."""
        if "xmlns" not in self.tag:
            return outer
        own = {
            one.name.partition(":")[2]: one.written
            for one in self.attributes(effort)
            if one.name == "xmlns" or one.name.startswith("xmlns:")
        }
        effort.spend(1 + len(outer) // 10)
        return {**outer, **own}

    def open(self) -> None:
        """Give it an end tag where it has none."""
        if not self.end:
            self.tag = self.tag[:-2].rstrip() + ">"
            self.end = f"</{self.name}>"

    def settle(self, effort: Effort) -> None:
        """Make one text of those that follow each other."""
        settled: list[Node] = []
        for one in self.children:
            last = settled[-1] if settled else None
            if one.kind == TEXT and last is not None and last.kind == TEXT:
                written = "".join((*last.pieces(), *one.pieces()))
                effort.spend(1 + len(written) // 1_000)
                settled[-1] = Leaf(TEXT, written)
            elif one.kind != TEXT or any(one.pieces()):
                settled.append(one)
        self.children = settled


Node = Leaf | Element


def written_tag(element: Element, attributes: list[Attribute], effort: Effort) -> str:
    """The start tag of an element with other attributes."""
    own = element.attributes(effort)
    end = element.tag[len(element.name) + 1 + sum(len("".join(one)) for one in own) :]
    return f"<{element.name}" + "".join("".join(one) for one in attributes) + end


def source_of(node: Node) -> str:
    """A node as it was read."""
    return node.source if isinstance(node, Element) else node.written


class XmlText:
    """A whole XML text: its root element, and what is written before and after it."""

    def __init__(self, data: bytes, effort: Effort) -> None:
        """Raises PatchRefused for what is no XML in UTF-8, has a DTD, or is too large or too deep."""
        if len(data) > LARGEST:
            raise PatchRefused("it is too large")
        effort.spend(1 + len(data) // 4)
        effort.hold(data.count(b"="))  # attributes
        text = _checked(data)
        holder = Element("<->", "", 0)
        _read(text, holder, effort)
        roots = [number for number, one in enumerate(holder.children) if isinstance(one, Element)]
        root = holder.children[roots[0]]
        assert isinstance(root, Element)
        self.before = "".join(piece for one in holder.children[: roots[0]] for piece in one.pieces())
        self.root = root
        self.after = "".join(piece for one in holder.children[roots[0] + 1 :] for piece in one.pieces())

    def octets(self) -> bytes:
        """The text as it is by now."""
        return "".join((self.before, *self.root.pieces(), self.after)).encode()


def _checked(data: bytes) -> str:
    """The text of octets that are well-formed XML in UTF-8, without a DTD."""
    try:
        text = data.decode()
    except UnicodeDecodeError as cause:
        raise PatchRefused("it is not in UTF-8") from cause
    declared = _ENCODING.match(text.removeprefix("\ufeff"))
    if declared is not None and declared[1].upper() not in ("UTF-8", "US-ASCII"):
        raise PatchRefused("it is not in UTF-8")
    parser = expat.ParserCreate("UTF-8", "\n")
    parser.StartDoctypeDeclHandler = _refuse_dtd
    depth = namespaces = 0

    def namespace_declared(_prefix: str | None, _uri: str | None) -> None:
        nonlocal namespaces
        namespaces += 1

    def started(_name: str, attributes: Sized) -> None:
        nonlocal depth, namespaces
        depth += 1
        if depth > DEEPEST:
            raise PatchRefused("it is too deep")
        if namespaces + len(attributes) > MOST_ATTRIBUTES:
            raise PatchRefused("an element has too many attributes")
        namespaces = 0

    def ended(_name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartNamespaceDeclHandler = namespace_declared
    parser.StartElementHandler, parser.EndElementHandler = started, ended
    try:
        parser.Parse(data, True)  # noqa: FBT003 - the parameter has no name
    except expat.ExpatError as cause:
        raise PatchRefused("it is no XML") from cause
    return text


def _refuse_dtd(*_declared: object) -> None:
    raise PatchRefused("it has a DTD")


def _read(text: str, holder: Element, effort: Effort) -> None:
    """Put the nodes of a sound text below `holder`."""
    above: list[Element] = [holder]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PatchRefused("it is written in a way that is not understood")
        at = token.end()
        kind, written = token.lastgroup, token[0]
        within = above[-1].children
        if kind == "start":
            effort.hold(2)  # with the list of its children
            element = Element(written, text, token.start())
            within.append(element)
            if not written.endswith("/>"):
                above.append(element)
        elif kind == "end":
            above.pop().close(written, at)
        elif kind in ("text", "cdata") and within and within[-1].kind == TEXT:
            last = within[-1]
            assert isinstance(last, Leaf)
            last.written += written
        else:
            effort.hold(1)
            within.append(Leaf(TEXT if kind in ("text", "cdata") else str(kind), written))
