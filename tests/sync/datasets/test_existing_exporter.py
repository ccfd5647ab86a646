"""What the existing exporter of the Timbuctoo profile writes is read, and N-Quads Unified Diff applied (TIM, NQUD)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from headwater.patches.registry import N_QUADS_DIFF
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
    ("of another state", diff(STATES[3], STATES[0]), "something else"),
    ("twice the one before", diff(set(), STATES[0]), ""),
    ("not UTF-8", b'+<http://example.org/a> <http://example.org/p> "\xff" .\n', "UTF-8"),
    ("nothing at all", b"", "something else"),
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
    again = run(dataset, dest)
    assert again.one.updated == 0


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
