"""XML Patch (RFC 5261, RFC 7351): what we make gives the new octets, and means the same to a reader by lxml's XPath."""

from __future__ import annotations

import copy
import random
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from headwater.patches.faults import LARGEST, MOST_NODES, MOST_OPERATIONS, PatchRefused
from headwater.patches.xml.applying import apply
from headwater.patches.xml.making import make

NAMES = ("a", "b", "item", "x:c")
ATTRIBUTES = (' k="1"', " v='q&amp;&quot;'", ' x:z="é"', ' id = "7"')
TEXTS = ("text", "a&lt;b", "<![CDATA[<x>]]>tail", "ü", "x<!--c-->y", "<?do this?>")


def written(chance: random.Random, depth: int, pad: str) -> str:
    """An element at random."""
    name, attributes = chance.choice(NAMES), "".join(chance.sample(ATTRIBUTES, chance.randint(0, 3)))
    if depth > 3 or chance.random() < 0.2:
        return f"{pad}<{name}{attributes}/>"
    if chance.random() < 0.4:
        return f"{pad}<{name}{attributes}>{chance.choice(TEXTS)}</{name}>"
    inner = "".join(written(chance, depth + 1, pad + " ") for _ in range(chance.randint(1, 4)))
    return f"{pad}<{name}{attributes}>{inner}{pad}</{name}>"


def edited(chance: random.Random, text: str) -> str:
    """The text with one thing in it changed, such that it is XML still."""
    tokens = re.findall(r"<!\[CDATA.*?\]\]>|<!--.*?-->|<[^>]*>|[^<]+", text)
    while True:
        place, new = chance.randrange(3, len(tokens) - 2), list(tokens)
        token = tokens[place]
        new[place : place + 1] = chance.choice(
            [
                [],
                [token.replace("1", "2").replace("k=", "kk=")],
                [token, written(chance, 3, "\n ")],
                [re.sub(r' \S+ ?= ?["\'][^"\']*["\']', "", token, count=1)],
                ["new" if token[0] != "<" else token],
            ]
        )
        found = "".join(new)
        try:
            etree.fromstring(found.encode())
        except etree.XMLSyntaxError:
            continue
        return found


def by_lxml(old: bytes, patch: bytes) -> Any:
    """The document after the operations of a patch: another reading of RFC 5261, over lxml's tree."""
    root = etree.fromstring(old)
    for one in etree.fromstring(patch):
        names = {prefix: uri for prefix, uri in one.nsmap.items() if prefix}
        (target,) = root.xpath(one.get("sel", ""), namespaces=names)
        brought, text, kind = [copy.deepcopy(child) for child in one], one.text or "", etree.QName(one).localname
        if isinstance(target, str):
            _set_text(target, None if kind == "remove" else text)
        elif attribute := one.get("type", ""):
            prefix, _, local = attribute[1:].rpartition(":")
            target.set(f"{{{names[prefix]}}}{local}" if prefix else local, text)
        elif kind == "add":
            _insert(target, one.get("pos", "append"), text, brought)
        else:
            root = _replace(root, target, brought if kind == "replace" else [])
    return root


def _set_text(target: Any, text: str | None) -> None:
    parent = target.getparent()
    if target.is_attribute and text is None:
        del parent.attrib[target.attrname]
    elif target.is_attribute:
        parent.set(target.attrname, text)
    elif target.is_text:
        parent.text = text
    else:
        parent.tail = text


def _add_text(parent: Any, place: int, text: str) -> None:
    if place:
        parent[place - 1].tail = (parent[place - 1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _insert(target: Any, position: str, text: str, brought: list[Any]) -> None:
    if position in ("append", "prepend"):
        parent, place = target, len(target) if position == "append" else 0
    else:
        parent = target.getparent()
        place = parent.index(target) + (position == "after")
    follows = ""
    if position == "prepend":
        follows, parent.text = parent.text or "", None
    elif position == "after":
        follows, target.tail = target.tail or "", None
    _add_text(parent, place, text)
    for number, child in enumerate(brought):
        parent.insert(place + number, child)
    _add_text(parent, place + len(brought), follows)


def _replace(root: Any, target: Any, brought: list[Any]) -> Any:
    parent = target.getparent()
    if parent is None:
        return brought[0]
    place, tail = parent.index(target), target.tail or ""
    parent.remove(target)
    for one in brought:
        one.tail = None
        parent.insert(place, one)
    _add_text(parent, place + len(brought), tail)
    return root


def canonical(root: Any) -> bytes:
    return etree.tostring(root, method="c14n")


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_what_is_made_gives_the_new_octets_and_means_it_to_another_reader(seed: int, edits: int) -> None:
    """RS-REL-04: applied by us, equal by octets; applied by XPath over another tree, equal as canonical XML."""
    chance = random.Random(seed)
    body = "".join(written(chance, 0, "\n ") for _ in range(8))
    old = f"<?xml version='1.0' encoding='utf-8'?>\n<root xmlns='urn:d' xmlns:x='urn:x'>{body}\n</root>\n"
    new = old
    for _ in range(edits):
        new = edited(chance, new)
    before, after = old.encode(), new.encode()
    patch = make(before, after)
    if patch is not None:
        assert len(patch) < len(after)
        assert apply(before, patch) == after
        assert canonical(by_lxml(before, patch)) == canonical(etree.fromstring(after))
    else:
        assert len(after) < 3_000


FILLER = "<filler>" + "x" * 500 + "</filler>"
ODD = {
    "a declaration": ("<?xml version='1.0'?><r><a>1</a>", "<?xml version='1.0'?><r><a>2</a>", "</r>"),
    "quotes and white space in tags": ("<r a='1'  b=\"2\" >", "<r a='3'  b=\"2\" >", "</r >"),
    "lines that end with CR LF": ("<r>\r\n <a>1</a>\r\n", "<r>\r\n <a>1</a>\r\n <a>2</a>\r\n", "</r>"),
    "a byte order mark": ("\ufeff<r><a>1</a>", "\ufeff<r><a>2</a>", "</r>"),
    "an empty element two ways": ("<r><a/><b></b>", "<r><a></a><b/>", "</r>"),
    "a comment and an instruction": ("<r><!--a--><?b c?>", "<r><!--d--><?b e?>", "</r>"),
    "references": ("<r><a>&#233;&amp;</a>", "<r><a>&#xE9;&amp;</a>", "</r>"),
    "CDATA": ("<r><a><![CDATA[<b>]]></a>", "<r><a><![CDATA[<c>]]></a>", "</r>"),
    "a namespace": ('<r xmlns:q="urn:q"><q:a q:b="1"/>', '<r xmlns:q="urn:q"><q:a q:b="2"/><q:a/>', "</r>"),
    "attributes that come and go": ('<r><a b="1" c="2"/>', '<r><a c="2" d="&quot;\'"/>', "</r>"),
    "texts between elements": ("<r>one<a/>two<b/>three", "<r>one<b/>three<c/>four", "</r>"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_files_that_are_written_oddly(name: str) -> None:
    """What a serializer would write anew stays as it is written."""
    old, new, end = ODD[name]
    before, after = (old + FILLER + end).encode(), (new + FILLER + end).encode()
    patch = make(before, after)
    assert patch is not None
    assert apply(before, patch) == after


DTD = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
NO_PATCH = {
    "another declaration": (f"<?xml version='1.0'?><r>{FILLER}</r>", f"<r>{FILLER}</r>"),
    "no XML": (f"<r>{FILLER}", f"<r><a/>{FILLER}"),
    "a DTD": (f"{DTD}<r><a>1</a>{FILLER}</r>", f"{DTD}<r><a>2</a>{FILLER}</r>"),
    "another encoding": (
        f"<?xml version='1.0' encoding='latin-1'?><r><a>1</a>{FILLER}</r>",
        f"<?xml version='1.0' encoding='latin-1'?><r><a>2</a>{FILLER}</r>",
    ),
    "a file that is too deep": ("<a>" * 500 + "1" + "</a>" * 500, "<a>" * 500 + "2" + "</a>" * 500),
}


@pytest.mark.parametrize("name", NO_PATCH)
def test_what_no_patch_is_made_of(name: str) -> None:
    old, new = NO_PATCH[name]
    assert make(old.encode(), new.encode()) is None


OLD = b'<r xmlns="urn:d"><a i="1">one</a> <a i="2">two<b/></a><!--c--></r>'
APPLIED = [
    ("""<p:add sel="r/a[@i='2']"><c/></p:add>""", "<b/>", "<b/><c/>"),
    ("""<p:add sel="*/a[2]/b" pos="before">x</p:add>""", "two", "twox"),
    ("""<p:remove sel="/r/a[.='one']" ws="after"/>""", '<a i="1">one</a> ', ""),
    ("""<p:remove sel="r/a[2]/@i"/>""", ' i="2"', ""),
    ("""<p:replace sel="r/comment()"><!--d--></p:replace>""", "<!--c-->", "<!--d-->"),
    ("""<p:replace sel="r/a[b='']/text()">2</p:replace>""", "two", "2"),
    ("""<p:add sel="r/a[1]" type="@j">x"y</p:add>""", ' i="1"', """ i="1" j='x"y'"""),
    ("""<p:add sel="r" type="namespace::q">urn:q</p:add>""", ' xmlns="urn:d"', ' xmlns="urn:d" xmlns:q="urn:q"'),
]


def xml_patch(operations: str, more: str = ' xmlns="urn:d"') -> bytes:
    return f'<p:patch xmlns:p="urn:ietf:rfc:7351"{more}>{operations}</p:patch>'.encode()


@pytest.mark.parametrize(("operations", "before", "after"), APPLIED)
def test_operations(operations: str, before: str, after: str) -> None:
    assert apply(OLD, xml_patch(operations)) == OLD.replace(before.encode(), after.encode())


REFUSED = {
    "no XML": b"<p:patch",
    "no patch": b"<patch/>",
    "a DTD": DTD.encode() + xml_patch('<p:remove sel="r/a[1]"/>'),
    "an entity": xml_patch('<p:replace sel="r/a[1]/text()">&b;</p:replace>'),
    "an unknown operation": xml_patch('<p:grow sel="r"/>'),
    "no selector": xml_patch("<p:remove/>"),
    "nothing there": xml_patch('<p:remove sel="r/q"/>'),
    "several there": xml_patch('<p:remove sel="r/a"/>'),
    "another namespace": xml_patch('<p:remove sel="r/a[1]"/>', ""),
    "a prefix that means something else": xml_patch('<p:add sel="r"><q/></p:add>', ' xmlns="urn:e"'),
    "the root removed": xml_patch('<p:remove sel="r"/>'),
    "an element for a text": xml_patch('<p:replace sel="r/a[1]/text()"><q/></p:replace>'),
    "an attribute that is there": xml_patch('<p:add sel="r/a[1]" type="@i">2</p:add>'),
    "white space that is not there": xml_patch('<p:remove sel="r/a[1]" ws="before"/>'),
    "more operations than are taken": xml_patch('<p:add sel="r" pos="prepend"/>' * (MOST_OPERATIONS + 1)),
    "an XPath of all descendants": xml_patch('<p:remove sel="//a//b//*"/>'),
    "an XPath with functions": xml_patch('<p:remove sel="r/a[count(//*[count(//*) &gt; 1]) = 2]"/>'),
    "an XPath with another axis": xml_patch('<p:remove sel="r/ancestor-or-self::node()"/>'),
    "an XPath of nested conditions": xml_patch(f'<p:remove sel="r{"[a" * 500}{"]" * 500}"/>'),
    "an XPath of many conditions": xml_patch(f"""<p:remove sel="r{"[a='1']" * 2_000}"/>"""),
    "an XPath that goes back and forth": xml_patch(f'<p:remove sel="r{"[" * 3_000}"/>'),
    "a long XPath": xml_patch(f'<p:remove sel="{"r/" * 200_000}a"/>'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    began = time.process_time()
    with pytest.raises(PatchRefused):
        apply(OLD, REFUSED[name])
    assert time.process_time() - began < 5


def test_many_operations_over_many_children_take_bounded_time() -> None:
    old = b"<r>" + b"<a>1</a>" * 50_000 + b"</r>"
    patch = xml_patch("""<p:replace sel="r/a[.='1'][.='1'][1]"><a>1</a></p:replace>""" * MOST_OPERATIONS, "")
    began = time.process_time()
    with pytest.raises(PatchRefused):
        apply(old, patch)
    assert time.process_time() - began < 20


def attributes(number: int) -> str:
    return "".join(f' xmlns:a{n}="urn:a"' for n in range(number))


AGAIN_AND_AGAIN = {
    "attributes of one element": ("<r/>", "".join(f'<p:add sel="*" type="@a{n}">1</p:add>' for n in range(9_000))),
    "one long text": (f"<r>{'x' * (8 << 20)}</r>", '<p:add sel="*">x</p:add>' * MOST_OPERATIONS),
    "the namespaces of each element": (
        f"<r{attributes(900)}>" + '<a xmlns:b="urn:b"/>' * 20_000 + "</r>",
        '<p:add sel="*/a[20000]"><c/></p:add>' * MOST_OPERATIONS,
    ),
}


@pytest.mark.parametrize("name", AGAIN_AND_AGAIN)
def test_what_is_looked_at_again_and_again_takes_bounded_time(name: str) -> None:
    old, operations = AGAIN_AND_AGAIN[name]
    began = time.process_time()
    with pytest.raises(PatchRefused):
        apply(old.encode(), xml_patch(operations, ""))
    assert time.process_time() - began < 20


@pytest.mark.parametrize("many", ["<b/>", "x<b/>", "<!---->", '<b a=""/>'])
def test_more_elements_than_are_held_are_refused(many: str) -> None:
    """Of the file, and of what a patch brings."""
    wide = f"<r>{many * MOST_NODES}</r>"
    assert len(wide) < LARGEST
    for old, operation in ((wide, '<p:add sel="*"/>'), ("<r/>", f'<p:add sel="*">{wide}</p:add>')):
        with pytest.raises(PatchRefused, match="too many values"):
            apply(old.encode(), xml_patch(operation, ""))


def test_more_attributes_than_an_element_has_are_refused() -> None:
    with pytest.raises(PatchRefused, match="too many attributes"):
        apply(f"<r{attributes(1_001)}/>".encode(), xml_patch('<p:add sel="*"/>', ""))
