"""DIT-ES documents as harvesters write them and tools export them (DIT-01, DIT-05…DIT-10 and their resolutions)."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.ingest.dit.documents import BadDocument, read_document
from headwater.ingest.dit.texts import Texts, Unwrapper
from headwater.ingest.push.feed import Line
from headwater.ingest.push.ingest_state import ChangeDocument, ResourceDocument
from headwater.ingest.push.resource_locations import Location
from headwater.spec.records import ChangeKind

NOON = dt.datetime(2016, 5, 1, 12, tzinfo=dt.UTC)
HERE = {"value": "a.pdf", "type": "rel_path"}
RESOURCE = {
    "resource_set": "elsevier",
    "location": {"value": "/data/a.pdf", "type": "abs_path"},
    "length": 5_000_000_000,
    "md5": "A" * 32,
    "mime": "application/pdf",
    "lastmod": "2016-05-01T12:00:00+0000",
    "ln": [
        {"rel": "described by", "href": {"value": "a.xml", "type": "rel_path"}, "mime": "application/xml"},
        {"rel": "http://my.org/rel", "href": {"value": "http://x.org/", "type": "url"}, "mime": "text/html"},
    ],
    "timestamp": 1462104000000,
}
CHANGE = {
    "resource_set": "elsevier",
    "location": HERE,
    "change": "updated",
    "lastmod": "2016-05-01T12:00:00+0000",
    "datetime": "2016-05-01T14:00:00+0200",
}


def resource(**fields: object) -> ResourceDocument:
    read = read_document({"location": HERE, **fields})
    assert isinstance(read, ResourceDocument)
    return read


def test_dit_05_every_field_of_a_resource() -> None:
    """DIT-05, DIT-07…DIT-09, DIT-A7 (64 bits), DIT-A17 (described by)."""
    read = read_document(RESOURCE)
    assert isinstance(read, ResourceDocument)
    assert (read.resource_set, read.location) == ("elsevier", Location("/data/a.pdf", "abs_path"))
    stated = read.metadata
    assert (stated.length, stated.hash, stated.type) == (5_000_000_000, "md5:" + "a" * 32, "application/pdf")
    assert stated.lastmod == read.stored_at == NOON
    assert [(one.rel, location.value, one.type) for location, one in read.links] == [
        ("describedby", "a.xml", "application/xml"),
        ("http://my.org/rel", "http://x.org/", "text/html"),
    ]
    assert read.remarks == ()


def test_dit_06_every_field_of_a_change() -> None:
    """DIT-06, DIT-A3: `datetime`, or else `timestamp`, is the change's time; `lastmod` is not."""
    read = read_document(CHANGE)
    assert isinstance(read, ChangeDocument)
    assert (read.change, read.lastmod, read.at) == (ChangeKind.UPDATED, NOON, NOON)
    stored = read_document({"location": HERE, "change": "deleted", "timestamp": "2016-05-01T12:00:00Z"})
    assert isinstance(stored, ChangeDocument)
    assert (stored.at, stored.lastmod) == (NOON, None)
    bare = read_document({"location": HERE, "change": "created", "lastmod": "2016-05-01T12:00:00Z"})
    assert isinstance(bare, ChangeDocument)
    assert bare.at is None


@pytest.mark.parametrize(
    "text",
    [
        "2016-05-01T12:00:00+0000",
        "2016-05-01T12:00:00Z",
        "2016-05-01T14:00:00+02:00",
        "2016-05-01T12:00:00.000+0000",
        "2016-05-01T07:00:00.000000-0500",
        1462104000000,
        1462104000000.0,
        "2016-05-01t12:00:00z",
        " 2016-05-01 12:00:00,000 ",
        "2016-05-01T08:30-0330",
    ],
)
def test_dit_a5_times_in_every_form(text: object) -> None:
    assert resource(lastmod=text).metadata.lastmod == NOON


@pytest.mark.parametrize(
    ("md5", "stated"),
    [
        ("a" * 32, "md5:" + "a" * 32),
        ("md5:" + "A" * 32, "md5:" + "a" * 32),
        (["a" * 32, "sha-256:" + "b" * 64], f"md5:{'a' * 32} sha-256:{'b' * 64}"),
        ("md5:" + "a" * 32 + " sha1:" + "c" * 40, f"md5:{'a' * 32} sha-1:{'c' * 40}"),
        ("blake3:" + "d" * 64, "blake3:" + "d" * 64),
        (["a" * 32, "b" * 32], "md5:" + "a" * 32),
        (["a" * 32, None, ""], "md5:" + "a" * 32),
        ("a" * 32 + ", sha-256:" + "B" * 64, f"md5:{'a' * 32} sha-256:{'b' * 64}"),
        ("urn:md5:" + "a" * 32, "md5:" + "a" * 32),
        ("", None),
        ([], None),
    ],
)
def test_dit_a8_digests_in_every_shape(md5: object, stated: str | None) -> None:
    assert resource(md5=md5).metadata.hash == stated


@pytest.mark.parametrize("length", [10, "10", " 10 ", 10.0])
def test_dit_a7_lengths_in_every_form(length: object) -> None:
    read = resource(length=length)
    assert (read.metadata.length, read.remarks) == (10, ())


@pytest.mark.parametrize(
    ("location", "read"),
    [
        ("http://x.org/a", Location("http://x.org/a", "url")),
        ({"value": "http://x.org/a"}, Location("http://x.org/a", "url")),
        ({"value": "http://x.org/a", "type": None}, Location("http://x.org/a", "url")),
        ({"value": "a", "type": " Rel_Path "}, Location("a", "rel_path")),
        ({"value": " a\\b", "type": "REL_PATH", "more": 1}, Location(" a\\b", "rel_path")),
    ],
)
def test_dit_07_types_of_locations_in_every_form(location: object, read: Location) -> None:
    assert read_document({"location": location}).location == read


FORGIVEN = [
    {"length": 1.5},
    {"length": "1,000"},
    {"length": "１０"},
    {"length": [10]},
    {"md5": "a" * 31},
    {"md5": [["a" * 32]]},
    {"mime": ["text/plain"]},
    {"lastmod": "Sun, 01 May 2016 12:00:00 GMT"},
    {"lastmod": "20160501T120000Z"},
    {"lastmod": "0000-01-01T00:00:00Z"},
    {"lastmod": ["2016-05-01T12:00:00Z"]},
    {"ln": {"rel": "describes describedby", "href": "http://x/"}},
    {"ln": [None, [], "x"]},
    {"ln": {"rel": "up", "href": ["http://x/"]}},
    {"length": -1},
    {"length": 1 << 63},
    {"length": "many"},
    {"length": 1e400},
    {"length": True},
    {"md5": "zz"},
    {"md5": {"a": 1}},
    {"mime": "pdf"},
    {"mime": 7},
    {"lastmod": "yesterday"},
    {"lastmod": "2016-13-01T00:00:00Z"},
    {"lastmod": 10**30},
    {"lastmod": True},
    {"ln": 7},
    {"ln": [{"rel": "up"}]},
    {"ln": [{"rel": "is part of", "href": "http://x/"}]},
    {"ln": [{"rel": None, "href": "http://x/"}]},
    {"ln": [{"rel": "up", "href": "http://x/"}] * 1000},
    {"odd": "x" * 20_000},
]


@pytest.mark.parametrize("fields", FORGIVEN, ids=lambda fields: str(fields)[:40])
def test_what_describes_and_cannot_be_read_is_left_out_and_said(fields: dict[str, object]) -> None:
    read = resource(length_=1, **fields)
    assert read.remarks
    assert all(len(one) < 400 for one in read.remarks)


def test_a_time_that_is_none_is_named() -> None:
    assert resource(lastmod="yesterday").remarks == ("lastmod is not a time: 'yesterday'",)


REFUSED = [
    [],
    "text",
    {},
    {"location": None},
    {"location": {"value": ""}},
    {"location": {"value": 7}},
    {"location": {"value": "a", "type": 7}},
    {"location": ["http://x/"]},
    {"location": {"Value": "a", "type": "rel_path"}},
    {"location": HERE, "resource_set": ["s"]},
    {"location": HERE, "change": "create"},
    {"location": HERE, "change": ["created"]},
    {"location": HERE, "resource_set": 7},
    {"location": HERE, "change": "moved"},
    {"location": HERE, "change": None},
]


@pytest.mark.parametrize("source", REFUSED, ids=str)
def test_what_does_not_say_what_it_is_about_is_refused(source: object) -> None:
    with pytest.raises(BadDocument):
        read_document(source)


def test_dit_06_what_tells_a_change_from_a_resource() -> None:
    """A serialiser may write every field of both, with null for what is not there."""
    nothing = dict.fromkeys((*RESOURCE, *CHANGE, "timestamp"))
    assert isinstance(read_document({**nothing, **RESOURCE}), ResourceDocument)
    assert isinstance(read_document({**nothing, **CHANGE}), ChangeDocument)
    with pytest.raises(BadDocument, match="without change"):  # as a resource it would have no digest any more
        read_document({**CHANGE, "change": None})


def test_dit_a17_relations_are_mapped_and_parted() -> None:
    links = resource(ln=[{"rel": "Describes, described by", "href": "http://x/"}]).links
    assert [one.rel for _, one in links] == ["describes", "describedby"]


def test_dit_a19_unknown_fields_are_kept() -> None:
    assert json.loads(resource(licence="CC0", pages=[1, 2]).kept) == {"licence": "CC0", "pages": [1, 2]}
    assert resource().kept == b""


def hit(kind: str | None, source: object, **more: object) -> dict[str, object]:
    return {"_index": "omtd-resourcesync", "_type": kind, "_id": "x1", "_score": 1.0, "_source": source, **more}


SHAPES: list[tuple[str, list[object], list[str | None]]] = [
    ("bare", [RESOURCE, CHANGE], [None, None]),
    ("a line of a dump", [hit("resource", RESOURCE), hit("change", CHANGE)], ["resource", "change"]),
    ("without types", [hit("_doc", RESOURCE), hit(None, CHANGE)], [None, None]),
    ("a search answer", [{"took": 1, "hits": {"total": 2, "hits": [hit("resource", RESOURCE), hit("change", CHANGE)]}}],
     ["resource", "change"]),
    ("a scroll answer", [{"_scroll_id": "c", "hits": {"hits": [hit("resource", RESOURCE)]}}], ["resource"]),
    ("answers to several searches",
     [{"responses": [{"hits": {"hits": [hit("resource", RESOURCE)]}}, {"hits": {"hits": []}}]}], ["resource"]),
    ("several that were asked for", [{"docs": [hit("change", CHANGE, found=True)]}], ["change"]),
    ("with fields that are named like wrappers", [{**RESOURCE, "docs": [1], "responses": []}], [None]),
    ("a list", [[hit("resource", RESOURCE), CHANGE]], ["resource", None]),
    ("a bulk request", [{"index": {"_type": "resource", "_id": "1"}}, RESOURCE, {"create": {"_type": "change"}}, CHANGE],  # noqa: E501
     ["resource", "change"]),
    ("a bulk update", [{"update": {"_type": "resource", "_id": "1"}}, {"doc": RESOURCE}], ["resource"]),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "kinds"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_dit_01_exports_in_every_shape(texts: list[object], kinds: list[str | None]) -> None:
    unwrapper = Unwrapper()
    found = [one for text in texts for one in unwrapper.push(text)]
    unwrapper.finish()
    assert [one.kind for one in found] == kinds
    for one in found:
        read_document(one.source, one.kind, one.stored_at)


def test_dit_09_the_time_that_an_old_index_keeps_itself() -> None:
    source = {"location": HERE, "change": "created"}
    for more in ({"_timestamp": 1462104000000}, {"fields": {"_timestamp": 1462104000000}}):
        (one,) = Unwrapper().push(hit("change", source, **more))
        read = read_document(one.source, one.kind, one.stored_at)
        assert isinstance(read, ChangeDocument)
        assert read.at == NOON


@pytest.mark.parametrize("value", [1, "x", None, {"delete": {"_id": "1"}}, {"hits": {"hits": [7]}}, [[[7]]]], ids=str)
def test_wrappers_of_nothing_are_refused(value: object) -> None:
    def read() -> None:
        for one in Unwrapper().push(value):
            read_document(one.source, one.kind)

    with pytest.raises(BadDocument):
        read()


def test_a_text_that_cannot_be_read_is_that_of_its_action() -> None:
    unwrapper = Unwrapper()
    assert unwrapper.push({"index": {"_type": "change"}}) == []
    unwrapper.skip()
    assert [one.kind for one in unwrapper.push(RESOURCE)] == [None]


def test_a_bulk_request_that_ends_early_is_refused() -> None:
    unwrapper = Unwrapper()
    assert unwrapper.push({"index": {}}) == []
    with pytest.raises(BadDocument):
        unwrapper.finish()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*RESOURCE, *CHANGE, "value", "type", "rel", "href", "_source", "hits", "index"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        for one in Unwrapper().push(value):
            read_document(one.source, one.kind, one.stored_at)
    except BadDocument:
        pass


@pytest.mark.parametrize("name", ["more", "length", "mime", "lastmod", "md5", "ln", "change"])
def test_a_document_of_any_depth_is_read_or_refused(name: str) -> None:
    """What a decoder takes just so, what repeats or keeps it may not: it must hold up no other document."""
    deep: object = 7
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(BadDocument, match="levels"):
        read_document({**RESOURCE, name: deep})


def test_one_document_has_some_links_and_some_remarks() -> None:
    """A link may name many relations, and everything in a document may be bad."""
    read = read_document({**RESOURCE, "ln": [{"rel": ["up", "next"] * 400, "href": HERE}] * 2, "md5": ["z"] * 9_999})
    assert isinstance(read, ResourceDocument)
    assert (len(read.links), len(read.remarks)) == (500, 20)
    assert "links" in read.remarks[0]


def test_texts_over_many_lines_may_be_more_than_one_may_hold() -> None:
    texts = Texts(2_000)
    pretty = json.dumps(RESOURCE, indent=1).encode().split(b"\n")
    lines = [Line(number, text) for number, text in enumerate(pretty * 20, 1)]
    found = [one for line in lines for one in texts.push(line)] + texts.finish()
    assert [one.number for one in found] == [1 + len(pretty) * number for number in range(20)]
    assert all(json.loads(one.text or b"") == RESOURCE for one in found)
