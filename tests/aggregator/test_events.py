"""Events: what becomes of what a run has done, their JSON, and the rules of quarantine."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from headwater.aggregator.events import Quarantine, event_lines, held_event, moved_events, new_events, sniffed
from headwater.aggregator.sqlite_store import FILE, SqliteStore
from headwater.aggregator.store import Event
from headwater.errors import UsageFault
from headwater.spec.records import Link
from headwater.sync.reports import CopyRecord, Done
from tests.aggregator.store_contract import T0, event, leased

VIA = Link(rel="via", href="https://first.example.org/a")


def record(path: str, uri: str) -> CopyRecord:
    return CopyRecord(
        uri=uri, path=path, hash="sha-256:00", length=3, type="text/xml", lastmod=T0, links=(VIA,), set_name="s",
        source="https://m.example.org/", copy="/srv/agg/museum",
    )  # fmt: skip


def test_what_a_run_has_done_becomes_events() -> None:
    whole = Done(
        "created", "u:a", "a", 9, set_name="s", hash="sha-256:00", length=3, type="text/xml", lastmod=T0, links=(VIA,)
    )
    found = new_events(
        "museum",
        [
            whole,
            Done("adopted", "u:b", "b"),
            Done("updated", "u:c", "c"),
            Done("updated", "u:d", "d", repaired=True),
            Done("failed", "u:e", "e", reason="why"),
            Done("deleted", "u:f", "f", hash="sha-256:01"),
        ],
    )
    assert [(one.action, one.path) for one in found] == [
        ("created", "a"), ("created", "b"), ("updated", "c"), ("deleted", "f"),
    ]  # fmt: skip
    assert found[0] == held_event("museum", record("a", "u:a"))
    assert found[0].origin == VIA.href
    assert found[1].origin == ""


def test_resources_that_have_moved_are_told(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / FILE) as store:
        store.enrol([("museum", "https://m.example.org/")], T0)
        held = [record(name, f"https://old.example.org/{name}") for name in "abc"]
        run = leased(store)
        store.append(run, [held_event("museum", one) for one in held], T0)
        store.append(run, [held_event("museum", held[2], "deleted")], T0)
        now = [record(name, f"https://new.example.org/{name}") for name in "acx"]
        moved = list(moved_events(store, "museum", now))
        assert [(one.action, one.uri, one.path, one.reason) for one in moved] == [
            ("moved", "https://new.example.org/a", "a", "formerly https://old.example.org/a"),
            ("moved", "https://new.example.org/x", "x", ""),  # the journal no longer has events of it
        ]
        store.append(run, moved, T0)
        assert list(moved_events(store, "museum", now)) == []


def test_the_names_in_json_are_stable() -> None:
    told = Event(
        number=7, run=3, at=T0, source="museum", set_name="s", action="updated", uri="u:ä", origin="", path="a\nb",
        hash="sha-256:00", length=3, type="text/xml", lastmod=T0, links=(VIA,),
    )  # fmt: skip
    lines = event_lines([told, msgspec.structs.replace(told, number=8, lastmod=None, links=(), origin="o:")])
    assert lines.count(b"\n") == 2
    first, second = map(json.loads, lines.splitlines())
    assert first == {
        "number": 7, "source": "museum", "set": "s", "action": "updated", "uri": "u:ä", "origin": None,
        "path": "a\nb", "hash": "sha-256:00", "length": 3, "type": "text/xml", "lastmod": "2026-01-01T00:00:00Z",
        "links": [{"rel": "via", "href": VIA.href}], "reason": None, "run": 3, "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    assert (second["lastmod"], second["links"], second["origin"]) == (None, [], "o:")


XML = b"<?xml version='1.0'?><record>x</record>"
PAGE = b"<!DOCTYPE html>\n<html><body>Database error</body></html>"
ALL = ("type", "well-formed", "html", "empty", "max:1kB")


@pytest.mark.parametrize(
    ("content", "type_", "rules", "objection"),
    [
        (XML, "application/xml", ALL, None),
        (XML, None, ALL, None),
        (b"\xef\xbb\xbf" + XML, "text/xml; charset=utf-8", ALL, None),
        (b"<record xmlns='u:a'/>", "application/vnd.x+xml", ALL, None),
        (b"<?xml version='1.0' encoding='UTF-16'?><r/>".decode().encode("utf-16"), "text/xml", ALL, None),
        (PAGE, "text/html", ALL, None),
        (PAGE, "application/xhtml+xml; charset=utf-8", ("type", "html"), None),
        (PAGE, "application/xml", ("html",), "HTML page, listed is application/xml"),
        (PAGE, None, ("html",), "HTML page, listed is no media type"),
        (PAGE, "application/xml", ("type",), "is html, listed is application/xml"),
        (b"<!-- x -->\n<HTML >", "application/pdf", ("html",), "HTML page"),
        (b"%PDF-1.7 ...", "application/pdf", ALL, None),
        (b"%PDF-1.7 ...", "application/xml", ("type",), "is pdf, listed is application/xml"),
        (b"not found", "application/pdf", ("type",), "of another type, listed is application/pdf"),
        (b"not found", "text/plain", ALL, None),
        (b'{"a": 1}', "application/ld+json", ALL, None),
        (b"12", "application/json", ALL, None),
        (b'{"a": ', "application/json", ("well-formed",), "not JSON"),
        (b"[" * 100_000, "application/json", ("well-formed",), "not JSON"),
        (b"<a><b></a>", "text/xml", ("well-formed",), "not well-formed XML: mismatched tag"),
        (b"<a>", None, ("well-formed",), "not well-formed XML: no element found"),
        (b"<a>", "text/plain", ("type", "html", "empty"), None),
        (b"<?xml version='1.0' encoding='shift_jis'?><a/>", "text/xml", ALL, None),
        (b"", "text/xml", ALL, "empty"),
        (b"", "text/xml", ("type", "html", "max:1kB"), None),
        (b"x" * 1001, "text/plain", ALL, "more than 0.98"),
        (b"\x89PNG\r\n\x1a\n", "image/jpeg", ("type",), "is png, listed is image/jpeg"),
        (b"PK\x03\x04", "application/epub+zip", ALL, None),
        (PAGE, "application/xml", (), None),
    ],
)
def test_a_rule_holds_an_event_back(
    tmp_path: Path, content: bytes, type_: str | None, rules: tuple[str, ...], objection: str | None
) -> None:
    file = tmp_path / "record"
    file.write_bytes(content)
    quarantine = Quarantine.of(rules)
    for action in ("created", "updated"):
        found = quarantine.objection(event("record", action, type=type_), file)
        assert (found is None) if objection is None else (found is not None and objection.lower() in found.lower())
    for action in ("deleted", "moved"):
        assert quarantine.objection(event("record", action, type=type_), file) is None


def test_a_file_that_is_gone_is_no_reason(tmp_path: Path) -> None:
    assert Quarantine.of(ALL).objection(event("a", type="text/xml"), tmp_path / "a") is None


def test_an_html_file_may_be_listed_without_a_type(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(PAGE)
    assert Quarantine.of(("html",)).objection(event("a.html"), tmp_path / "a.html") is None


@pytest.mark.parametrize("rule", ["types", "max:", "max:many", "", "max"])
def test_an_unknown_rule_is_refused(rule: str) -> None:
    with pytest.raises(UsageFault, match="quarantine") as caught:
        Quarantine.of(("type", rule))
    assert caught.value.code == "HW-AGG-11"


def test_a_beginning_may_show_nothing() -> None:
    assert [sniffed(one) for one in (b"", b"plain", b"< 3", b"\0\0")] == [None] * 4
