"""What we write is valid under the published schemas, but for the faults of the schemas themselves, listed by name."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from lxml import etree

from headwater.spec.kinds import RULES, Root
from headwater.spec.records import Entry, Link
from headwater.spec.writer import Profile, write_document
from tests.spec.test_serialisation import CASES, T1, WRITABLE, head
from tests.support.documents import EXAMPLES

XSD = EXAMPLES / "xsd"
_SCHEMA = """<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema">
<xsd:import namespace="http://www.sitemaps.org/schemas/sitemap/0.9" schemaLocation="{sitemap}"/>
<xsd:import namespace="http://www.openarchives.org/rs/terms/" schemaLocation="{resourcesync}"/>
</xsd:schema>"""


def schema(sitemap: str, resourcesync: str = "resourcesync-1.1.xsd") -> etree.XMLSchema:
    text = _SCHEMA.format(sitemap=(XSD / sitemap).as_uri(), resourcesync=(XSD / resourcesync).as_uri())
    return etree.XMLSchema(etree.parse(BytesIO(text.encode())))


SCHEMAS = {Root.URLSET: schema("sitemap.xsd"), Root.SITEMAPINDEX: schema("siteindex.xsd")}


def errors(data: bytes, root: Root) -> list[str]:
    validator = SCHEMAS[root]
    validator.validate(etree.fromstring(data))
    return [str(error.message) for error in validator.error_log]


SCHEMA_FAULTS = {
    "AMB-09: the pattern of media types knows no dot, no plus, no underscore": ("'type'", "pattern"),
    "AMB-03: the Sitemap schemas want at least one entry": ("Missing child element(s)", "Expected is"),
    "RS-DOC-13: attributes of other namespaces pass, but not those whose own schema is not known": (),
}
"""What the schemas reject although the standard allows it."""


def excused(message: str) -> bool:
    return any(words and all(word in message for word in words) for words in SCHEMA_FAULTS.values())


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_we_write_is_valid(case) -> None:
    data = b"".join(write_document(head(case.kind), [case.entry], case.profile))
    unexcused = [message for message in errors(data, RULES[case.kind].root) if not excused(message)]
    assert unexcused == []


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("kind", WRITABLE)
def test_every_kind_is_valid_with_its_links(kind, profile) -> None:
    rules = RULES[kind]
    document = head(kind)
    links = [*document.links, Link(rel="describedby", href="http://example.com/about", type="text/html")]
    if rules.index.value != "never":
        links.append(Link(rel="index", href="http://example.com/index"))
    case = next((case for case in CASES if case.kind is kind), None)
    entries = [case.entry] if case else [Entry(loc="http://example.com/part", lastmod=T1)]
    if case is None and rules.source == "RS-SD-09":
        entries = [Entry(loc="http://example.com/part", capability="description")]
    if kind.value == "capability-list-index":
        entries = [Entry(loc="http://example.com/part")]
    data = b"".join(write_document(msgspec.structs.replace(document, links=tuple(links)), entries, profile))
    assert errors(data, rules.root) == []


def test_the_listed_faults_are_faults_of_the_schemas() -> None:
    kind = next(case.kind for case in CASES)
    dotted = b"".join(write_document(head(kind), [Entry(loc="http://example.com/part", type="application/vnd.x")]))
    empty = b"".join(write_document(head(kind), []))
    for data in (dotted, empty):
        found = errors(data, Root.URLSET)
        assert found
        assert all(excused(message) for message in found)


@pytest.mark.parametrize("path", sorted((EXAMPLES / "core-1.1").glob("*.xml")), ids=lambda path: path.stem)
def test_the_schemas_accept_the_published_examples(path: Path) -> None:
    data = path.read_bytes()
    assert errors(data, Root.SITEMAPINDEX if b"<sitemapindex" in data else Root.URLSET) == []


def test_version_1_0_knows_no_datetime() -> None:
    # RS-VER-01: this is why `both` is no promise to validators of 1.0, only to its readers
    from headwater.spec.kinds import Kind

    case = next(case for case in CASES if case.kind is Kind.CHANGE_LIST)
    data = b"".join(write_document(head(case.kind), [case.entry]))
    old = schema("sitemap.xsd", "resourcesync-1.0.xsd")
    assert not old.validate(etree.fromstring(data))
    assert all("datetime" in str(error.message) for error in old.error_log)
