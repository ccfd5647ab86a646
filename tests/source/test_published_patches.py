"""Patches of a source: each leads from the state before its change to the one that is listed, in lists and dumps."""

from __future__ import annotations

import hashlib
import io
import json
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.catalog.interface import StateUpdate
from headwater.ingest.push.events import take_lines
from headwater.ingest.push.feed import Line
from headwater.patches import JSON, format_of_patch
from headwater.patches.json_patch import apply
from headwater.publish.patches import PublishedPatch, patches_between
from headwater.source.config import SetConfig, SourceConfig, read_config
from headwater.source.source import Source
from headwater.spec.kinds import PATCH, Kind
from headwater.spec.records import ChangeKind, Entry, Link
from tests.source import killed_publication
from tests.support.documents import read_bytes
from tests.support.kept_versions import damage, forget_all
from tests.support.program import run_here
from tests.support.waiting import settle

pytestmark = pytest.mark.long(15)

BASE = "http://source.example/sync"


class PatchedFolder:
    """A folder that is published with patches into a static tree; `states` are the octets by their SHA-256."""

    def __init__(self, base: Path, more: str = "") -> None:
        self.folder, self.state = base / "folder", base / "state"
        self.folder.mkdir()
        self.config = base / "source.toml"
        self.config.write_text(
            f"state = {json.dumps(str(self.state))}\nbase_url = {json.dumps(BASE)}\nsegment_entries = 6\n"
            f'[[set]]\nfiles = {json.dumps(str(self.folder))}\npatch = ["json"]\nmax_delete = 1\n{more}'
        )
        self.states: dict[str, bytes] = {}

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)
        self.states[hashlib.sha256(content).hexdigest()] = content

    def publish(self) -> None:
        settle()
        assert run_here("publish", self.config).returncode == 0

    def read(self, url: str) -> bytes:
        return (self.state / "documents" / url.removeprefix(BASE + "/")).read_bytes()

    def changes(self) -> Iterator[Entry]:
        """The entries of all Change Lists, in order."""
        top, entries, _ = read_bytes(self.read("files/changelist.xml"))
        if top.kind is Kind.CHANGE_LIST_INDEX:
            for part in entries:
                yield from read_bytes(self.read(part.loc))[1]
        else:
            yield from entries

    def patches(self) -> list[str]:
        """The names of the patches that lie there."""
        return sorted(one.name for one in (self.state / "documents/files/patch").glob("*.json"))


def patch_of(entry: Entry) -> Link | None:
    return next((one for one in entry.links if one.rel == PATCH), None)


def sha256(entry: Entry | Link) -> str:
    return next(one.hex for one in entry.digests if one.algorithm == "sha-256")


def records(chance: random.Random, count: int) -> list[dict[str, object]]:
    return [{"id": number, "value": chance.random()} for number in range(count)]


def test_each_update_has_the_patch_from_the_state_before(tmp_path: Path) -> None:
    """RS-REL-04, RS-CDM-11, AMB-48: in Change Lists and in manifests of Change Dumps, and nowhere else."""
    source = PatchedFolder(tmp_path, "change_dump = true\n")
    chance = random.Random(4)
    held = records(chance, 100)
    for name in ("a.json", "b.json", "c.bin"):
        source.write(name, content(name, held))
    source.publish()
    for number in range(5):
        held[chance.randrange(100)]["value"] = number
        for name in ("a.json", "b.json", "c.bin"):
            source.write(name, content(name, held))
        source.publish()
    (source.folder / "a.json").unlink()
    source.publish()
    source.write("a.json", content("a.json", held))
    source.publish()
    before: dict[str, bytes] = {}
    linked = 0
    for one in source.changes():
        link = patch_of(one)
        if one.change is ChangeKind.UPDATED and not one.loc.endswith(".bin"):
            assert link is not None, one.loc
            octets = source.read(link.href)
            assert (link.length, sha256(link)) == (len(octets), hashlib.sha256(octets).hexdigest())
            assert len(octets) < (one.length or 0)
            old = before.get(one.loc) or content(one.loc[-6:], records(random.Random(4), 100))
            assert format_of_patch(link.type) is JSON
            assert apply(old, octets) == source.states[sha256(one)]
            linked += 1
        else:
            assert link is None
        if one.change is not ChangeKind.DELETED:
            before[one.loc] = source.states[sha256(one)]
    assert linked == 10
    assert PATCH.encode() not in source.read("files/resourcelist.xml")
    assert packed(source) == linked


def packed(source: PatchedFolder) -> int:
    """How many patches the packages of the Change Dump have, all of them as their links say."""
    found: set[str] = set()
    for package in (source.state / "documents/files/changedump").glob("*.zip"):
        with zipfile.ZipFile(io.BytesIO(package.read_bytes())) as members:
            for one in read_bytes(members.read("manifest.xml"))[1]:
                if (link := patch_of(one)) is not None:
                    assert link.path is not None
                    assert members.read(link.path[1:]) == source.read(link.href)
                    found.add(link.href)
    return len(found)


def content(name: str, held: list[dict[str, object]]) -> bytes:
    return json.dumps(held, indent=2 if name.startswith("b") else 1).encode() + b"\n"


def test_a_patch_goes_when_no_list_names_its_change(tmp_path: Path) -> None:
    source = PatchedFolder(tmp_path, "retention_seconds = 0.01\nrefresh_seconds = 0.01\n")
    held = records(random.Random(1), 50)
    source.write("a.json", content("a.json", held))
    source.publish()
    for number in range(14):
        held[number]["value"] = number
        source.write("a.json", content("a.json", held))
        source.publish()
    named = {link.href.rpartition("/")[2] for one in source.changes() if (link := patch_of(one))}
    assert 0 < len(named) < 14
    kept = source.patches()
    assert named <= set(kept)  # and others, for an hour, for readers of the lists as they were


@pytest.mark.parametrize("most", [2_000, 1])
def test_a_patch_stays_as_long_as_an_archived_list_names_its_change(tmp_path: Path, most: int) -> None:
    """RS-ARC-31: what an archived Change List leads to is there; with the bounds of archives patches go, too."""
    more = f"retention_seconds = 0.01\nrefresh_seconds = 0.01\narchive = true\narchive_documents = {most}\n"
    source = PatchedFolder(tmp_path, more)
    held = records(random.Random(1), 50)
    source.write("a.json", content("a.json", held))
    source.publish()
    for number in range(20):
        held[number]["value"] = number
        source.write("a.json", content("a.json", held))
        source.publish()
    archived = [
        one
        for part in read_bytes(source.read("files/archive/changelist.xml"))[1]
        for one in read_bytes(source.read(part.loc))[1]
    ]
    assert archived
    named = {link.href for one in (*archived, *source.changes()) if (link := patch_of(one))}
    assert all(source.read(href) for href in named)
    with Source(read_config(source.config)) as running:
        noted = {f"{BASE}/{one.name('files')}" for one in patches_between(running.catalog, "files")}
    assert named == noted
    assert (len(noted) == 20) == (most > 1)


@pytest.mark.parametrize("lost", ["the version before", "all versions"])
def test_without_the_octets_a_change_is_published_without_patch(tmp_path: Path, lost: str) -> None:
    source = PatchedFolder(tmp_path)
    held = records(random.Random(1), 50)
    source.write("a.json", content("a.json", held))
    source.publish()
    if lost == "the version before":
        damage(source.state / "versions", content("a.json", held))
    else:
        forget_all(source.state / "versions")
    held[0]["value"] = 1
    source.write("a.json", content("a.json", held))
    source.publish()
    (only,) = source.changes()
    assert (only.change, patch_of(only)) == (ChangeKind.UPDATED, None)
    held[0]["value"] = 2
    source.write("a.json", content("a.json", held))
    source.publish()
    assert patch_of(list(source.changes())[-1]) is not None


def test_a_set_without_patches_keeps_nothing_for_them(tmp_path: Path) -> None:
    source = PatchedFolder(tmp_path)
    source.config.write_text(source.config.read_text().replace('patch = ["json"]', "patch = []"))
    for value in (1, 2):
        source.write("a.json", content("a.json", [{"id": 1, "value": value}] * 50))
        source.publish()
    assert not (source.state / "versions").exists()
    assert all(patch_of(one) is None for one in source.changes())


def test_xml_patches_of_an_earlier_version_stay_as_long_as_a_list_names_them(tmp_path: Path) -> None:
    source = PatchedFolder(tmp_path)
    held = records(random.Random(1), 50)
    for number in range(3):
        held[0]["value"] = number
        source.write("a.json", content("a.json", held))
        source.publish()
    patch = b"<p/>"
    with Source(read_config(source.config)) as running:
        (first, *_) = patches_between(running.catalog, "files")
        old = PublishedPatch(first.seq, "application/xml-patch+xml", hashlib.sha256(patch).hexdigest(), len(patch))
        running.catalog.record("files", [], running._clock(), state=StateUpdate([old.row()]))
    path = source.state / "documents" / old.name("files")
    path.write_bytes(patch)
    source.config.write_text(source.config.read_text() + 'mirrors = ["http://m.example/{path}"]\n')
    held[0]["value"] = 9
    source.write("a.json", content("a.json", held))
    source.publish()  # other documents: the store is searched for what nobody needs
    links = [link for one in source.changes() if (link := patch_of(one))]
    assert [(link.type, source.read(link.href) == patch) for link in links] == [
        ("application/xml-patch+xml", True),
        ("application/json-patch+json", False),
        ("application/json-patch+json", False),
    ]


@pytest.mark.parametrize("step", killed_publication.STEPS)
def test_killed_anywhere_each_update_has_its_patch_after_the_next_run(tmp_path: Path, step: str) -> None:
    """RS-REL-04: a list names only patches that are there; the first patch of a set is the hard one."""
    source = PatchedFolder(tmp_path)
    held = records(random.Random(1), 50)
    source.write("a.json", old := content("a.json", held))
    source.publish()
    held[0]["value"] = 1
    source.write("a.json", content("a.json", held))
    settle()
    command = [sys.executable, "-m", killed_publication.__name__, step, str(source.config)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert all(source.read(link.href) for one in source.changes() if (link := patch_of(one)))
    source.publish()
    source.config.write_text(source.config.read_text() + 'mirrors = ["http://m.example/{path}"]\n')
    source.publish()  # other documents: the store is searched for what nobody needs
    (only,) = source.changes()
    link = patch_of(only)
    assert link is not None
    assert format_of_patch(link.type) is JSON
    assert apply(old, source.read(link.href)) == source.states[sha256(only)]
    assert len(source.patches()) == 1


def test_updates_of_push_sets_have_patches_too(tmp_path: Path) -> None:
    """RS-REL-04: of records that state a SHA-256, from files below the set's root."""
    root = tmp_path / "root"
    root.mkdir()
    fed = SetConfig(feed="events", resource_root=str(root), patch=("json",))
    config = SourceConfig(state=str(tmp_path / "state"), base_url=BASE, sets=(fed,))
    held, states = records(random.Random(1), 50), []
    with Source(config) as source:
        source.push_sets.by_set["files"].open()
        for number in range(4):
            held[number]["value"] = number
            states.append(content("a.json", held))
            (root / "a.json").write_bytes(states[-1])
            digest = hashlib.sha256(states[-1]).hexdigest()
            event = {"path": "/a.json", "sha-256": digest, "length": len(states[-1]), "type": "application/json"}
            (taken,) = take_lines(source.push_sets.by_set["files"], [Line(1, json.dumps(event).encode())])
            assert taken.status == 200
            source.publisher.publish("files", source.catalog.mark("files", source._clock()))
        documents = tmp_path / "state" / "documents"
        _top, entries, _ = read_bytes((documents / "files/changelist.xml").read_bytes())
        first, *updates = entries
        assert patch_of(first) is None
        for number, one in enumerate(updates):
            link = patch_of(one)
            assert link is not None
            assert format_of_patch(link.type) is JSON
            patch = (documents / link.href.removeprefix(BASE + "/")).read_bytes()
            assert apply(states[number], patch) == states[number + 1]
        assert len(updates) == 3
