"""What the existing exporter of the Timbuctoo profile writes is read, and N-Quads Unified Diff applied (TIM, NQUD)."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from headwater.rdf import N_QUADS_DIFF
from tests.support.copying import DONE, Ran, check, go
from tests.support.fake_source import Reply, Site, Source, at, ln, sha, url
from tests.triplestores.test_embedded_store import POOL

STATES = [set(POOL[:60]), set(POOL[5:62]), set(POOL[5:62]) | set(POOL[80:83]), set(POOL[9:62])]


def text_of(state: set[bytes]) -> bytes:
    return b"".join(sorted(state))


def diff(old: set[bytes], new: set[bytes]) -> bytes:
    return b"".join([*(b"-" + one for one in sorted(old - new)), *(b"+" + one for one in sorted(new - old))])


class Dataset:
    """A source of one dataset with a patch for each change; `style` is how it tells of them."""

    def __init__(self, source: Source, *, hashes: bool = True, at_loc: bool = False, late_from: bool = False) -> None:
        self.site = Site(source)
        self._hashes, self._at_loc, self._late_from = hashes, at_loc, late_from
        self.entries: list[str] = []
        self.old: set[bytes] = set()
        self.count = 0

    def to(self, new: set[bytes], patch: bytes | None = None, result: bytes | None = None) -> Dataset:
        site = self.site
        self.count += 1
        name, body = f"changes{self.count}.nqud", diff(self.old, new) if patch is None else patch
        site.put("dataset.nq", text_of(new), change=False)
        site.clock = 10.0 * self.count
        site.source.pages[f"/set/resources/{name}"] = Reply(body)
        kind = "created" if self.count == 1 else "updated"
        if self._at_loc:
            self.entries.append(url(site.uri(name), change=kind, datetime=at(site.clock), type=N_QUADS_DIFF))
        else:
            stated = text_of(new) if result is None else result
            known = {"hash": sha(stated), "length": len(stated)} if self._hashes else {}
            link = ln("http://www.openarchives.org/rs/terms/patch", site.uri(name), type=N_QUADS_DIFF)
            entry: dict[str, Any] = {"change": kind, "datetime": at(site.clock), "type": "application/n-quads", **known}
            self.entries.append(url(site.uri("dataset.nq"), links=link, **entry))
        self.old = new
        return self

    def publish(self) -> Dataset:
        site = self.site
        known = {} if self._hashes else {"hash": None, "length": None}
        site.publish_list([site.resource("dataset.nq", **known)])
        site.publish_changes(site.clock + 500 if self._late_from else 0.0, entries=self.entries)
        site.publish_capabilities("resourcelist", "changelist")
        site.publish_description()
        return self

    def fetched(self) -> list[str]:
        found = [path.rpartition("/")[2] for path in self.site.source.requests() if "/resources/" in path]
        self.site.source.forget()
        return found


def run(dataset: Dataset, dest: Path) -> Ran:
    ran = go(dataset.site.source.base, dest)
    assert ran.status == DONE, (ran.notices, ran.report, ran.error)
    assert (dest / "dataset.nq").read_bytes() == text_of(dataset.old)
    return ran


def test_a_dataset_is_kept_current_by_its_patches(source: Source, dest: Path) -> None:
    """Each is verified by the hash of the dataset after it; nothing else is fetched (TIM-A1, TIM-A6, NQUD-05)."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    assert dataset.fetched() == ["dataset.nq"]
    ran = run(dataset.to(STATES[1]).publish(), dest)
    assert (dataset.fetched(), ran.one.patched) == (["changes2.nqud"], 1)
    run(dataset.to(STATES[2]).to(STATES[3]).publish(), dest)
    assert dataset.fetched() == ["changes3.nqud", "changes4.nqud"]
    assert run(dataset, dest).one.process == "none"
    assert check(source.base, dest).verdict == "in sync"


WRONG = [
    ("broken", b"+<http://example.org/a> <http://example.org/p> .\n", "line 1"),
    ("of another state", diff(STATES[3], STATES[0]), "result is wrong"),
    ("twice the one before", diff(set(), STATES[0]), ""),
    ("not UTF-8", b'+<http://example.org/a> <http://example.org/p> "\xff" .\n', "UTF-8"),
    ("nothing at all", b"", "result is wrong"),
    ("truncated gzip", gzip.compress(diff(STATES[0], STATES[1]))[:-9], "gzip"),
]


@pytest.mark.parametrize(("patch", "told"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_patch_that_is_wrong_is_rejected_whole(source: Source, dest: Path, patch: bytes, told: str) -> None:
    """Nothing of it is applied, its line is told, and the dataset is fetched (NQUD-A3, NQUD-A14)."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.fetched()
    ran = run(dataset.to(STATES[1], patch=patch).publish(), dest)
    assert dataset.fetched() == ["changes2.nqud", "dataset.nq"]
    assert any(notice.rule == "DST-S1" and told in notice.message for notice in ran.notices), ran.notices


def test_patches_in_the_wrong_order_and_one_that_is_missing(source: Source, dest: Path) -> None:
    """A gap in the patches: the dataset itself is the way out."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.to(STATES[1], patch=diff(STATES[1], STATES[2])).to(STATES[2], patch=diff(STATES[0], STATES[1])).publish()
    run(dataset, dest)
    dataset.to(STATES[3]).publish()
    del source.pages["/set/resources/changes4.nqud"]
    run(dataset, dest)


def test_gzip_is_sniffed(source: Source, dest: Path) -> None:
    """TIM-A9."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    dataset.fetched()
    run(dataset.to(STATES[1], patch=gzip.compress(diff(STATES[0], STATES[1]), mtime=0)).publish(), dest)
    assert dataset.fetched() == ["changes2.nqud"]


@pytest.mark.parametrize("at_loc", [False, True], ids=["patch links", "patches at loc"])
@pytest.mark.parametrize("late_from", [False, True], ids=["from", "late from"])
def test_what_the_existing_exporter_writes_is_followed(
    source: Source, dest: Path, at_loc: bool, late_from: bool
) -> None:
    """Without hashes the dataset is fetched after each change: nothing says what a patch leads to (TIM-A1, TIM-A4)."""
    dataset = Dataset(source, hashes=False, at_loc=at_loc, late_from=late_from).to(STATES[0]).publish()
    run(dataset, dest)
    for number, state in enumerate(STATES[1:], 2):
        dataset.fetched()
        ran = run(dataset.to(state).publish(), dest)
        fetched = dataset.fetched()
        assert "dataset.nq" in fetched
        assert f"changes{number}.nqud" not in fetched
        if not at_loc:
            assert "baseline" not in ran.one.process
        assert not list(dest.rglob("*.nqud"))
        assert verdict_on(dataset, dest) == ("in sync", None)
    again = run(dataset, dest)
    assert again.one.updated == 0


def verdict_on(dataset: Dataset, dest: Path) -> tuple[str, str | None]:
    """What an audit says, and of the dataset."""
    report = check(dataset.site.source.base, dest)
    found = report.sets[0].findings
    assert len(found) <= 1, found
    return report.verdict, found[0].verdict if found else None


def test_an_audit_of_a_dataset_whose_hash_is_not_listed_goes_by_what_was_placed(source: Source, dest: Path) -> None:
    """The patches at the `loc` of changes are not what is held: their times and lengths say nothing (TIM-A1, DST-Q)."""
    dataset = Dataset(source, hashes=False, at_loc=True).to(STATES[0]).publish()
    run(dataset, dest)
    run(dataset.to(STATES[1]).publish(), dest)
    held = dest / "dataset.nq"
    dataset.fetched()
    assert verdict_on(dataset, dest) == ("in sync", None)
    assert dataset.fetched() == []
    held.write_bytes(held.read_bytes() + b"<urn:a> <urn:p> <urn:o> .\n")
    assert verdict_on(dataset, dest) == ("not in sync", "different")
    held.unlink()
    assert verdict_on(dataset, dest) == ("not in sync", "missing")


def test_patches_at_loc_are_no_files_of_a_copy_without_a_state(source: Source, dest: Path) -> None:
    """TIM-A1: also where another tool has made it, and so nothing is remembered."""
    Dataset(source, hashes=False, at_loc=True).to(STATES[0]).publish()
    dest.mkdir()
    (dest / "dataset.nq").write_bytes(text_of(STATES[0]))
    report = check(source.base, dest)
    assert (report.sets[0].missing, report.verdict) == (0, "undetermined")


def test_a_time_that_no_change_has_stated_is_no_difference(source: Source, dest: Path) -> None:
    """A file has the time that the server tells where no change stated one: what is listed later may be another."""
    site = Site(source)
    site.put("a.txt", b"one")
    site.publish_list([site.resource("a.txt", hash=None, length=None)])
    site.publish_changes(0.0, entries=[])
    site.publish_capabilities("resourcelist", "changelist")
    site.publish_description()
    go(source.base, dest)
    site.put("a.txt", b"two")
    entry = site.change(2.0, "updated", "a.txt", None)
    site.clock = 50.0
    site.publish_changes(0.0, entries=[entry])
    source.pages["/set/resources/a.txt"] = Reply(b"two", modified=site.now())
    go(source.base, dest)
    assert (dest / "a.txt").read_bytes() == b"two"
    for lastmod, counted in ((at(1), "same_by_record"), (at(50), "same"), (at(51), "different")):
        site.publish_list([url(site.uri("a.txt"), lastmod)], when=60)
        assert getattr(check(source.base, dest).sets[0], counted) == 1, counted


def test_a_late_from_with_hashes_is_no_gap(source: Source, dest: Path) -> None:
    """TIM-A4: changes before `from` are done by their patches all the same."""
    dataset = Dataset(source, late_from=True).to(STATES[0]).publish()
    run(dataset, dest)
    for number, state in enumerate(STATES[1:], 2):
        dataset.fetched()
        ran = run(dataset.to(state).publish(), dest)
        assert (dataset.fetched(), ran.one.process) == ([f"changes{number}.nqud"], "increment")


def test_a_missing_at_and_a_day_as_lastmod_are_read(source: Source, dest: Path) -> None:
    """TIM-A11."""
    dataset = Dataset(source).to(STATES[0]).publish()
    site = dataset.site
    site.publish_list([url(site.uri("dataset.nq"), "2026-11-01", hash=sha(text_of(STATES[0])))], at=None)
    run(dataset, dest)
    dataset.to(STATES[1])
    site.publish_changes(0.0, entries=dataset.entries)
    site.publish_list([url(site.uri("dataset.nq"), "2026-11-02", hash=sha(text_of(STATES[1])))], at=None)
    run(dataset, dest)


def test_a_patch_of_no_stated_length_is_no_larger_than_the_copy(source: Source, dest: Path) -> None:
    """Where neither its length nor that of the dataset is stated; 16 MiB are taken in any case (DST-S1)."""
    dataset = Dataset(source).to(STATES[0]).publish()
    run(dataset, dest)
    for state, more in ((STATES[1], 1 << 20), (STATES[3], 17 << 20)):
        dataset.to(state, patch=diff(dataset.old, state) + b"\n" * more)
        dataset.entries[-1] = re.sub(r' length="\d+"', "", dataset.entries[-1])
        ran = run(dataset.publish(), dest)
        assert ran.one.patched == (more < 16 << 20), ran.notices
