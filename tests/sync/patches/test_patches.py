"""Patches in a destination: only onto the very previous state, verified by the hash alone, else the resource whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.patches.json_patch import make
from headwater.spec.kinds import PATCH
from headwater.transport.fetch import TransportOptions
from tests.support.copying import DONE, FAILED, go, is_clean, tree
from tests.support.fake_source import Page, Reply, Site, Source, coded, endless, ln, redirect, reset, sha, truncated

TYPE = "application/json-patch+json"
RESOURCE = "/set/resources/a.json"


def state(number: int) -> bytes:
    """A file of 5,000 octets in which one number differs."""
    return json.dumps({"number": number, "filler": ["x" * 40] * 100}, indent=1).encode()


class PatchedSite(Site):
    """A set of one file whose updates have patches; `spoil` changes what is served, `link` what is stated."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.put("a.json", state(0))
        self.clock = 10.0
        self.links: dict[float, str] = {}
        self.publish(since=10.0)

    def update(self, number: int, page: Page | None = None, base: int | None = None, **stated: Any) -> bytes:
        """One more change, with its patch at `/patch/NUMBER`; the patch."""
        old = state(number - 1 if base is None else base)
        self.put("a.json", state(number))
        patch = make(old, state(number))
        assert patch is not None
        known: dict[str, Any] = {"type": TYPE, "length": len(patch), "hash": sha(patch)} | stated
        href = known.pop("href", f"{self.source.base}/patch/{number}")
        self.links[self.clock] = ln(PATCH, href, **{name: value for name, value in known.items() if value is not None})
        self.source.pages[f"/patch/{number}"] = page or Reply(patch)
        return patch

    def change(self, when: float, kind: str, name: str, body: bytes | None = None, **more: object) -> str:
        return super().change(when, kind, name, body, **more).replace("</url>", self.links.get(when, "") + "</url>")

    def open_list(self) -> None:
        """The Change List as it is by now."""
        self.publish_changes(10.0)
        self.source.forget()


@pytest.fixture
def patched(source: Source, dest: Path) -> PatchedSite:
    """A source with a copy of its first state."""
    site = PatchedSite(source)
    assert go(source.base, dest).status == DONE
    return site


def asked(source: Source) -> list[str]:
    return [path for path in source.requests() if path.startswith(("/patch", "/set/resources", "/else"))]


def test_an_update_is_done_by_its_patch(source: Source, patched: PatchedSite, dest: Path) -> None:
    """DST-S1, and the bar: 2 % of the octets at most (bench); the report counts them."""
    patch = patched.update(1)
    patched.open_list()
    ran = go(source.base, dest)
    assert (ran.status, asked(source)) == (DONE, ["/patch/1"])
    assert tree(dest) == {"a.json": state(1)}
    assert (ran.one.updated, ran.one.patched) == (1, 1)
    assert (ran.one.octets, ran.one.octets_saved) == (len(patch), len(state(1)) - len(patch))
    source.forget()
    assert go(source.base, dest, baseline=True).one.unchanged == 1
    assert asked(source) == []


def test_several_pending_patches_are_applied_in_order(source: Source, patched: PatchedSite, dest: Path) -> None:
    for number in range(1, 6):
        patched.update(number)
    patched.open_list()
    ran = go(source.base, dest)
    assert (ran.status, sorted(asked(source))) == (DONE, [f"/patch/{number}" for number in range(1, 6)])
    assert (tree(dest), ran.one.patched, is_clean(dest)) == ({"a.json": state(5)}, 1, True)


def test_with_patches_off_none_is_asked_for(source: Source, patched: PatchedSite, dest: Path) -> None:
    patched.update(1)
    patched.open_list()
    ran = go(source.base, dest, patches="off")
    assert (ran.status, asked(source), ran.one.patched) == (DONE, [RESOURCE], 0)
    assert tree(dest) == {"a.json": state(1)}


def test_a_created_resource_has_no_patch(source: Source, dest: Path) -> None:
    """DST-S1: only for an update; and after a deletion nothing is the state before."""
    site = PatchedSite(source)
    assert go(source.base, dest).status == DONE
    site.drop("a.json")
    site.update(1)
    site.changes[-1] = (site.clock, "created", "a.json", state(1))
    site.open_list()
    assert go(source.base, dest).status == DONE
    assert (asked(source), tree(dest)) == ([RESOURCE], {"a.json": state(1)})


# the copy is not the state before


def _edit(dest: Path) -> None:
    (dest / "a.json").write_bytes(state(7))


def _same_size(dest: Path) -> None:
    there = (dest / "a.json").stat()
    (dest / "a.json").write_bytes(state(7))
    import os

    os.utime(dest / "a.json", ns=(there.st_atime_ns, there.st_mtime_ns))


def _remove(dest: Path) -> None:
    (dest / "a.json").unlink()


@pytest.mark.parametrize("damage", [_edit, _same_size, _remove])
def test_a_copy_that_is_not_what_was_stored_is_fetched_whole(
    damage: Callable[[Path], None], source: Source, patched: PatchedSite, dest: Path
) -> None:
    patched.update(1)
    patched.open_list()
    damage(dest)
    assert go(source.base, dest).status == DONE
    assert RESOURCE in asked(source)
    assert tree(dest) == {"a.json": state(1)}


def test_a_change_that_could_not_be_done_is_a_change_missed(source: Source, patched: PatchedSite, dest: Path) -> None:
    """The copy stays at the state before the failure: a later patch does not fit, and is not asked for."""
    patched.update(1, Reply(b"", 404))
    patched.open_list()
    source.pages[RESOURCE] = Reply(b"", 404)
    assert go(source.base, dest).status == FAILED
    patched.update(2)
    patched.open_list()
    assert go(source.base, dest).status == DONE
    assert (asked(source), tree(dest)) == ([RESOURCE], {"a.json": state(2)})


def test_a_copy_that_is_a_state_between_goes_on_from_there(source: Source, patched: PatchedSite, dest: Path) -> None:
    """A Resource List may be ahead of the changes that are read after it: the copy tells by its hash."""
    for number in (1, 2):
        patched.update(number)
    patched.publish_list(when=10.0)
    patched.update(3)
    patched.put("a.json", state(3), change=False)
    source.pages[RESOURCE] = Reply(state(2))
    patched.open_list()
    fresh = dest.parent / "fresh"
    ran = go(source.base, fresh)
    assert ran.status == DONE
    assert (asked(source), tree(fresh)) == ([RESOURCE, "/patch/3"], {"a.json": state(3)})


# a patch is not what it should be

DOUBLING = json.dumps(
    [{"op": "add", "path": "/d", "value": ["x" * 60]}]
    + [{"op": "copy", "from": "/d", "path": "/d/-"} for _ in range(30)]
).encode()
ONE_PATH = json.dumps([{"op": "replace", "path": "/number", "value": 1}] * 20_000).encode()

USELESS: dict[str, tuple[Reply, dict[str, Any]]] = {
    "a patch that is not there": (Reply(b"", 404), {}),
    "a patch that fails": (Reply(b"", 500), {}),
    "a patch that does not apply": (Reply(b'[{"op":"remove","path":"/q"}]'), {"length": None, "hash": None}),
    "a patch to something else": (
        Reply(b'[{"op":"replace","path":"/number","value":9}]'),
        {"length": None, "hash": None},
    ),
    "a patch that is no patch": (Reply(b"<html/>"), {"length": None, "hash": None}),
    "a patch that doubles": (Reply(DOUBLING), {"length": None, "hash": None}),
    "a patch of many operations": (Reply(ONE_PATH), {"length": None, "hash": None}),
    "a patch of another digest": (Reply(b'[{"op":"replace","path":"/number","value":1}]'), {"hash": sha(b"else")}),
    "a patch longer than said": (Reply(b'[{"op":"replace","path":"/number","value":1}] ' + b" " * 99), {"hash": None}),
    "a patch without end": (endless(), {"length": None, "hash": None}),
    "a patch that is cut off": (truncated(b'[{"op":"replace","path":"/number","value":1}]'), {}),
    "a patch that is reset": (reset(), {}),
    "a coded patch": (coded(b'[{"op":"replace","path":"/number","value":1}]'), {"length": None, "hash": None}),
}


@pytest.mark.parametrize("name", USELESS)
def test_a_useless_patch_costs_a_request(name: str, source: Source, patched: PatchedSite, dest: Path) -> None:
    """DST-S1: discarded, the resource is fetched whole; nothing but the hash makes a copy."""
    page, stated = USELESS[name]
    patched.update(1, page, **stated)
    patched.open_list()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.patched, ran.one.failed) == (DONE, 0, 0)
    assert "/patch/1" in asked(source)
    assert (tree(dest), is_clean(dest)) == ({"a.json": state(1)}, True)
    assert "DST-S1" in ran.rules()


def test_after_the_second_of_three_patches_fails_the_resource_is_fetched(
    source: Source, patched: PatchedSite, dest: Path
) -> None:
    patched.update(1)
    patched.update(2, Reply(b"[1]"), length=3, hash=sha(b"[1]"))
    patched.update(3)
    patched.open_list()
    ran = go(source.base, dest)
    assert (ran.status, sorted(asked(source))) == (DONE, ["/patch/1", "/patch/2", "/patch/3", RESOURCE])
    assert (tree(dest), is_clean(dest)) == ({"a.json": state(3)}, True)


def test_after_a_useless_patch_no_other_is_executed(source: Source, patched: PatchedSite, dest: Path) -> None:
    """DST-S1: what has others is fetched whole."""
    names = [f"b{number}.json" for number in range(5)]
    for name in names:
        patched.put(name, state(0))
    patched.open_list()
    assert go(source.base, dest).status == DONE
    patched.update(1)
    patched.update(2)
    for name in names:
        patched.put(name, state(1))
        patched.links[patched.clock] = ln(PATCH, f"{source.base}/patch/{name}", type=TYPE)
        source.pages[f"/patch/{name}"] = Reply(b'[{"op":"remove","path":"/q"}]')
    patched.open_list()
    ran = go(source.base, dest, transport=TransportOptions(concurrency=1))
    assert (ran.status, ran.one.patched) == (DONE, 1)
    patches = ["/patch/1", "/patch/2", *(f"/patch/{name}" for name in names)]
    assert sorted(asked(source)) == sorted([*patches, *(f"/set/resources/{name}" for name in names)])
    assert (tree(dest), is_clean(dest)) == ({"a.json": state(2)} | dict.fromkeys(names, state(1)), True)


NOT_ASKED: dict[str, dict[str, Any]] = {
    "an unknown type": {"type": "application/vnd.example-patch"},
    "an XML Patch": {"type": "application/xml-patch+xml"},
    "the type of the printed example": {"type": "application/json-patch"},
    "another host": {"href": "http://patches.example/patch/1"},
    "an internal address": {"href": "http://169.254.169.254/patch/1"},
    "another scheme": {"href": "ftp://127.0.0.1/patch/1"},
    "as long as the resource": {"length": len(state(1))},
    "a length beyond all bounds": {"length": 1 << 40},
    "a content coding": {"encoding": "gzip"},
}


@pytest.mark.parametrize("name", NOT_ASKED)
def test_a_link_that_is_ignored(name: str, source: Source, patched: PatchedSite, dest: Path) -> None:
    """RS-DST-12, DST-S12, DST-S1."""
    patched.update(1, **NOT_ASKED[name])
    patched.open_list()
    ran = go(source.base, dest)
    assert (ran.status, asked(source), ran.one.patched) == (DONE, [RESOURCE], 0)
    assert tree(dest) == {"a.json": state(1)}


def test_a_patch_that_leads_elsewhere_is_not_followed(source: Source, patched: PatchedSite, dest: Path) -> None:
    """DST-S12: every hop passes the guard."""
    with Source("127.0.0.2") as other:
        other.pages["/else"] = Reply(b"[]")
        patched.update(1, redirect(f"{other.base}/else"))
        patched.open_list()
        assert go(source.base, dest).status == DONE
        assert other.requests() == []
    assert tree(dest) == {"a.json": state(1)}


def test_an_entry_without_hash_is_never_patched(source: Source, patched: PatchedSite, dest: Path) -> None:
    """No patch makes a copy that the hash does not confirm."""
    patched.update(1)
    entry = patched.change(patched.clock, "updated", "a.json", state(1), hash=None)
    patched.publish_changes(10.0, entries=[entry])
    source.forget()
    assert go(source.base, dest).status == DONE
    assert asked(source) == [RESOURCE]
