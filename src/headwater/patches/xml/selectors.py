"""The selectors of RFC 5261: the part of XPath by which one node is named, read without an XPath engine.

Steps go down by names, each with conditions on place, attribute or text; there are no functions, no other axes and no
`//`, so that finding a node costs no more than looking at the children along the way.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.sax.saxutils import unescape

from headwater.patches.faults import DEEPEST, Effort, PatchRefused
from headwater.patches.xml.text_tree import COMMENT, INSTRUCTION, TEXT, Element, Node, Scope

_NAME = r"(?:[^\s\[\]/@*()='\":]+:)?[^\s\[\]/@*()='\":]+"
_STEP = re.compile(
    rf"(?P<test>text\(\)|comment\(\)|processing-instruction\((?:'[^']*'|\"[^\"]*\")?\)|node\(\)|\*|@{_NAME}"
    rf"|namespace::{_NAME}|{_NAME})(?P<conditions>(?:\[[^\[\]'\"]*(?:(?:'[^']*'|\"[^\"]*\")[^\[\]'\"]*)*\])*)(?P<slash>/|\Z)"
)
_CONDITION = re.compile(rf"\[\s*(?:([1-9][0-9]{{0,8}})|(@?{_NAME}|\.)\s*=\s*('[^']*'|\"[^\"]*\"))\s*\]")
_LEAVES = {"text()": TEXT, "comment()": COMMENT}
_MOST_CONDITIONS = 10
_LONGEST = 10_000
XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_REFERENCES = {"&quot;": '"', "&apos;": "'"}


class Condition(NamedTuple):
    """Which of the nodes of a step: the one at a place (from 1 on), or those whose `name` has a value."""

    place: int = 0
    name: str = ""
    value: str = ""


class Step(NamedTuple):
    """One step down."""

    test: str
    conditions: tuple[Condition, ...]


class Target(NamedTuple):
    """What a selector has found: a node and the elements it lies in, outermost first; or an attribute of the last.

    `scope` are the namespaces that hold in the last element.
    """

    within: tuple[Element, ...]
    node: Node | None
    attribute: str
    scope: Scope


def parse(selector: str) -> list[Step]:
    """The steps of a selector. Raises PatchRefused."""
    text = selector.strip().removeprefix("/")
    if not text or len(text) > _LONGEST:
        raise PatchRefused("a selector is empty or too long")
    steps, at, more = list[Step](), 0, True
    while more:
        found = _STEP.match(text, at)
        if found is None or len(steps) >= DEEPEST:
            raise PatchRefused("a selector is not understood")
        conditions = _CONDITION.findall(found["conditions"])
        if len(conditions) > _MOST_CONDITIONS or _CONDITION.sub("", found["conditions"]):
            raise PatchRefused("a selector is not understood")
        made = tuple(Condition(int(place or 0), name, quoted[1:-1]) for place, name, quoted in conditions)
        steps.append(Step(found["test"], made))
        at, more = found.end(), bool(found["slash"])
    return steps


def find(root: Element, selector: str, names: Scope, effort: Effort) -> Target:
    """The one node, attribute or namespace that a selector means. Raises PatchRefused where it is not just one.

    `names` are the namespaces of the prefixes in it; names without a prefix are in the default one (RFC 5261, 4.2.1).
    """
    *steps, last = parse(selector)
    within: tuple[Element, ...] = ()
    scope: Scope = {"xml": XML_NAMESPACE}
    children: list[Node] = [root]
    for step in steps:
        element = _one(step, children, scope, names, effort)
        if not isinstance(element, Element):
            raise PatchRefused("a selector goes into what is no element")
        within, scope, children = (*within, element), element.scope(scope, effort), element.children
    if last.test.startswith(("@", "namespace::")):
        return _attribute(last, within, scope, names, effort)
    return Target(within, _one(last, children, scope, names, effort), "", scope)


def _attribute(step: Step, within: tuple[Element, ...], scope: Scope, names: Scope, effort: Effort) -> Target:
    if not within or step.conditions:
        raise PatchRefused("a selector is not understood")
    prefix = step.test.removeprefix("namespace::")
    name = f"xmlns:{prefix}" if prefix != step.test else local_attribute(step.test[1:], names, scope)
    if sum(one.name == name for one in within[-1].attributes(effort)) != 1:
        raise PatchRefused("there is nothing at a selector")
    return Target(within, None, name, scope)


def local_attribute(name: str, names: Scope, scope: Scope) -> str:
    """The name that an attribute has in the document: its prefix has to mean the same there. Raises PatchRefused."""
    prefix, colon, _ = name.partition(":")
    if colon and names.get(prefix, XML_NAMESPACE if prefix == "xml" else None) != scope.get(prefix):
        raise PatchRefused("a prefix means something else in the document")
    return name


def _one(step: Step, children: list[Node], scope: Scope, names: Scope, effort: Effort) -> Node:
    effort.spend(1 + len(children) // 4)
    found = [one for one in children if _is_meant(step.test, one, scope, names, effort)]
    for condition in step.conditions:
        effort.spend(1 + len(found))
        if condition.place:
            found = found[condition.place - 1 : condition.place]
        else:
            found = [one for one in found if _has(one, condition, scope, names, effort)]
    if len(found) != 1:
        raise PatchRefused("there is nothing at a selector" if not found else "a selector means several nodes")
    return found[0]


def _is_meant(test: str, node: Node, scope: Scope, names: Scope, effort: Effort) -> bool:
    if test == "node()":
        return True
    if isinstance(node, Element):
        return test == "*" or _is_named(test, node, scope, names, effort)
    if test.startswith("processing-instruction("):
        wanted = test[len("processing-instruction(") + 1 : -2]
        return node.kind == INSTRUCTION and (
            not wanted or re.split(r"[\s?]", node.written[2:], maxsplit=1)[0] == wanted
        )
    return _LEAVES.get(test) == node.kind


def _is_named(test: str, element: Element, scope: Scope, names: Scope, effort: Effort) -> bool:
    prefix, _, local = test.rpartition(":")
    own_prefix, _, own_local = element.name.rpartition(":")
    if local != own_local:
        return False
    meant = names.get(prefix, XML_NAMESPACE if prefix == "xml" else "")
    return meant == element.scope(scope, effort).get(own_prefix, "")


def _has(node: Node, condition: Condition, scope: Scope, names: Scope, effort: Effort) -> bool:
    """Whether a node has the value that is asked for: in an attribute, in itself, or in a child of a name."""
    if condition.name == ".":
        return _value(node, effort) == condition.value
    if not isinstance(node, Element):
        return False
    if condition.name.startswith("@"):
        name = local_attribute(condition.name[1:], names, node.scope(scope, effort))
        return any(one.name == name and _plain(one.written) == condition.value for one in node.attributes(effort))
    own = node.scope(scope, effort)
    effort.spend(1 + len(node.children))
    return any(
        isinstance(one, Element)
        and _is_named(condition.name, one, own, names, effort)
        and _value(one, effort) == condition.value
        for one in node.children
    )


def _value(node: Node, effort: Effort) -> str:
    """The text of a node, as XPath has it."""
    if isinstance(node, Element):
        return "".join(_value(one, effort) for one in node.children if one.kind in (TEXT, node.kind))
    effort.spend(1 + len(node.written) // 20)
    parts = re.split(r"<!\[CDATA\[(.*?)\]\]>", node.written, flags=re.DOTALL)
    return "".join(one if number % 2 else _plain(one) for number, one in enumerate(parts))


def _plain(written: str) -> str:
    if "&#" in written:
        written = re.sub(r"&#(?:x([0-9A-Fa-f]{1,6})|([0-9]{1,7}));", _character, written)
    return unescape(written, _REFERENCES) if "&" in written else written


def _character(found: re.Match[str]) -> str:
    return chr(min(int(found[1], 16) if found[1] else int(found[2]), 0x10FFFF))
