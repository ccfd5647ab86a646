"""Names and URLs: what a site may be called, and where everything lies."""

from __future__ import annotations

import pytest

from headwater.publish.document_content import capability_list
from headwater.publish.document_names import CAPABILITIES
from headwater.publish.site import (
    RESERVED,
    BadSite,
    SetSettings,
    Site,
    capability_list_name,
    change_list_name,
    change_segment_name,
    is_part_name,
    open_change_list_name,
    resource_list_name,
    resource_page_name,
)


@pytest.mark.parametrize("name", ["files", "a", "0", "reports-2024", "a.b_c", "x" * 64])
def test_set_names(name: str) -> None:
    assert SetSettings(name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "A", ".hidden", "-a", "_a", "a/b", "a b", "ä", "a\n", "..", "x" * 65, "a%20b", *sorted(RESERVED)]
)
def test_names_that_no_set_has(name: str) -> None:
    with pytest.raises(BadSite):
        SetSettings(name=name)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h", "http://h"),
        ("http://h/", "http://h"),
        ("https://h:8443/a/b/", "https://h:8443/a/b"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://h/caf%C3%A9", "http://h/caf%C3%A9"),
    ],
)
def test_base_urls(given: str, base: str) -> None:
    assert Site(base_url=given).base_url == base


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "/a",
        "ftp://h",
        "http://",
        "http://u:p@h",
        "http://h/#x",
        "http://h/?q",
        "http://h?",
        "http://h/a/../b",
        "http://h/./a",
        "http://h//a",
        "http://h/a b",
        "http://h/é",
        "http://h/%zz",
        "http://h/<a>",
        "http://h:port",
        "http://h:99999",
        "http://h/" + "a" * 300,
    ],
)
def test_no_base_urls(url: str) -> None:
    with pytest.raises(BadSite):
        Site(base_url=url)


def test_two_sets_of_one_name_and_a_set_that_looks_like_the_base_path() -> None:
    with pytest.raises(BadSite):
        Site(base_url="http://h", sets=(SetSettings(), SetSettings()))
    with pytest.raises(BadSite):
        Site(base_url="http://h/files/x")


def test_where_everything_lies() -> None:
    site = Site(
        base_url="http://h/base/", sets=(SetSettings(name="s"), SetSettings(name="t", resource_base="http://cdn/t/"))
    )
    names = [
        capability_list_name("s"),
        resource_list_name("s"),
        resource_page_name("s", 7),
        change_list_name("s"),
        change_segment_name("s", 123456),
        open_change_list_name("s"),
    ]
    assert [site.url(name) for name in names] == [
        "http://h/base/s/capabilitylist.xml",
        "http://h/base/s/resourcelist.xml",
        "http://h/base/s/resourcelist/00007.xml",
        "http://h/base/s/changelist.xml",
        "http://h/base/s/changelist/123456.xml",
        "http://h/base/s/changelist/open.xml",
    ]
    assert site.resource_prefix("s") == "http://h/base/s/resources/"
    assert site.resource_prefix("t") == "http://cdn/t/"
    with pytest.raises(BadSite):
        site.resource_prefix("u")


@pytest.mark.parametrize(
    ("name", "is_part"),
    [
        ("s/resourcelist/00000.xml", True),
        ("s/changelist/00001.xml", True),
        ("s/changelist/open.xml", False),
        ("s/resourcelist.xml", False),
        ("s/resources/00000.xml", False),
        ("s/resources/resourcelist/00000.xml", False),
        ("t/resourcelist/00000.xml", False),
        ("s/resourcelist/00000.xml.bak", False),
    ],
)
def test_only_pages_and_segments_are_ever_swept(name: str, is_part: bool) -> None:
    assert is_part_name("s", name) is is_part


def test_the_capability_list_has_one_entry_for_each_listed_row_of_the_table() -> None:
    site = Site(base_url="http://h")
    _head, entries = capability_list(site, site.settings("files"), with_later=False)
    listed = [row for row in CAPABILITIES if row.is_listed and row.setting is None]
    assert [one.capability for one in entries] == [row.name for row in listed]
    assert [one.loc for one in entries] == [f"http://h/files/{row.top.name}" for row in listed]
    documents = [document.name for row in CAPABILITIES for document in row.documents]
    assert len(set(documents)) == len(documents)
    with_all = {row.setting: True for row in CAPABILITIES if row.setting is not None}
    _head, entries = capability_list(site, SetSettings(**with_all), with_later=True)  # type: ignore[arg-type]
    assert [one.capability for one in entries] == [row.name for row in CAPABILITIES if row.is_listed]
    _head, entries = capability_list(site, SetSettings(**with_all), with_later=False)  # type: ignore[arg-type]
    assert "resourcedump" not in [one.capability for one in entries]  # RS-CAP-04: before there are packages
