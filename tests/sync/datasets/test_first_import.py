"""The first import of a dataset from its changes: equal to a transfer of it, or that (TIM-08, TIM-A3, TIM-A6)."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.cli import run as cli
from headwater.quantities import human_octets
from tests.support.copying import DONE, FAILED, check, go, is_clean, tree
from tests.support.fake_source import Reply, Source, at, ln
from tests.sync.datasets.test_existing_exporter import STATES, Dataset, diff, run, text_of

PATCHES = [f"changes{n}.nqud" for n in range(1, 5)]


def history(source: Source, *, hashes: bool = True, at_loc: bool = False) -> Dataset:
    dataset = Dataset(source, hashes=hashes, at_loc=at_loc)
    for state in STATES:
        dataset.to(state)
    return dataset.publish()


def test_all_patches_make_what_a_transfer_brings(source: Source, dest: Path, tmp_path: Path) -> None:
    """The same octets, and the same afterwards (TIM-A6)."""
    dataset = history(source)
    ran = go(source.base, dest, patches="all")
    assert (ran.status, ran.one.created, ran.one.patched) == (DONE, 1, 1), ran.notices
    assert sorted(dataset.fetched()) == PATCHES
    run(dataset, tmp_path / "whole")
    assert dataset.fetched() == ["dataset.nq"]
    assert (dest / "dataset.nq").read_bytes() == (tmp_path / "whole" / "dataset.nq").read_bytes()
    assert check(source.base, dest).verdict == "in sync"
    assert is_clean(dest)
    assert go(source.base, dest, patches="all").one.process == "none"
    dataset.to(STATES[0]).publish()
    dataset.fetched()
    assert go(source.base, dest, patches="all").one.patched == 1
    assert dataset.fetched() == ["changes5.nqud"]


def test_what_is_described_is_remembered_of_the_list(source: Source, dest: Path) -> None:
    """Not of the changes that a dataset is made from: what they do not name is described still (RS-DST-16)."""
    dataset = history(source)
    site = dataset.site
    site.put("x.txt", b"one", change=False)
    site.put("x.xml", b"<x/>", change=False)
    records = ln("describes", site.uri("x.txt")) + ln("describes", site.uri("dataset.nq"))
    site.publish_list([site.resource("dataset.nq"), site.resource("x.txt"), site.resource("x.xml", links=records)])
    assert go(source.base, dest, patches="all", only_described=True).one.patched == 1
    assert set(tree(dest)) == {"dataset.nq", "x.txt", "x.xml"}
    site.put("x.txt", b"two")
    dataset.entries.append(site.change(*site.changes[-1]))
    site.publish_changes(0.0, entries=dataset.entries)
    assert go(source.base, dest, patches="all", only_described=True).status == DONE
    assert tree(dest)["x.txt"] == b"two"


def without(n: int) -> Callable[[Dataset], None]:
    def spoil(dataset: Dataset) -> None:
        dataset.entries.pop(n)
        dataset.publish()

    return spoil


def gone(dataset: Dataset) -> None:
    del dataset.site.source.pages["/set/resources/changes2.nqud"]


def broken(dataset: Dataset) -> None:
    dataset.site.source.pages["/set/resources/changes3.nqud"] = Reply(b"+<urn:a> .\n")


def other(dataset: Dataset) -> None:
    dataset.site.source.pages["/set/resources/changes3.nqud"] = Reply(diff(STATES[3], STATES[0]))


def bomb(dataset: Dataset) -> None:
    nothing = b"+<urn:a> <urn:b> <urn:c> .\n-<urn:a> <urn:b> <urn:c> .\n"
    octets = gzip.compress(diff(STATES[1], STATES[2]) + nothing * 1_500_000)
    dataset.site.source.pages["/set/resources/changes3.nqud"] = Reply(octets)


def no_list(dataset: Dataset) -> None:
    del dataset.site.source.pages["/set/changelist.xml"]


WAYS_OUT = [
    ("the first change is not listed", without(0), "result is wrong"),
    ("a change is not listed", without(1), "result is wrong"),
    ("a patch is gone", gone, "404"),
    ("a patch is broken", broken, "line 1"),
    ("a patch is another", other, "result is wrong"),
    ("a patch grows beyond measure", bomb, "more than"),
]


@pytest.mark.parametrize(("spoil", "told"), [w[1:] for w in WAYS_OUT], ids=[w[0] for w in WAYS_OUT])
def test_where_the_changes_do_not_lead_to_it_the_dataset_is_fetched(
    source: Source, dest: Path, spoil: Callable[[Dataset], None], told: str
) -> None:
    dataset = history(source)
    spoil(dataset)
    dataset.fetched()
    ran = go(source.base, dest, patches="all")
    assert ran.status == DONE, ran.notices
    assert (dest / "dataset.nq").read_bytes() == text_of(STATES[3])
    assert any(one.rule == "TIM-A6" and told in one.message for one in ran.notices), ran.notices
    assert "dataset.nq" in dataset.fetched()
    assert is_clean(dest)


def test_patches_at_loc_make_it_where_the_resource_list_has_a_hash(source: Source, dest: Path) -> None:
    """TIM-A1; without any hash nothing could prove it, and the dataset is fetched."""
    dataset = history(source, hashes=False, at_loc=True)
    assert go(source.base, dest / "none", patches="all").one.patched == 0
    site = dataset.site
    site.publish_list([site.resource("dataset.nq")])
    dataset.fetched()
    ran = go(source.base, dest / "one", patches="all")
    assert (ran.status, ran.one.patched) == (DONE, 1), ran.notices
    assert sorted(dataset.fetched()[:4]) == PATCHES
    assert (dest / "one" / "dataset.nq").read_bytes() == text_of(STATES[3])


def test_changes_after_the_resource_list(source: Source, dest: Path) -> None:
    """What is listed decides where the chain ends; what comes after is done as an increment."""
    dataset = Dataset(source).to(STATES[0]).to(STATES[1]).publish()
    listed = source.pages["/set/resourcelist.xml"]
    dataset.to(STATES[2]).to(STATES[3])
    dataset.publish()
    source.pages["/set/resourcelist.xml"] = listed
    ran = go(source.base, dest, patches="all")
    assert (ran.status, ran.one.failed) == (DONE, 0), ran.notices
    assert "dataset.nq" not in dataset.fetched()
    assert (dest / "dataset.nq").read_bytes() == text_of(STATES[3])


def test_what_is_no_dataset_is_copied_as_ever(source: Source, dest: Path) -> None:
    dataset = Dataset(source)
    dataset.site.put("a.txt", b"no RDF")
    dataset.site.publish()
    assert go(source.base, dest, patches="all").status == DONE
    no_list(dataset)
    assert go(source.base, dest / "2", patches="all").status != FAILED


def test_an_earlier_state_is_made_of_the_patches_up_to_it(source: Source, dest: Path) -> None:
    """A source of a dataset keeps no earlier states, and all patches: `--at` needs no more (TIM-A6, DST-S6)."""
    dataset = history(source)
    for number, state in enumerate(STATES, start=1):
        dataset.fetched()
        moment, folder = at(10.0 * number), dest / str(number)
        ran = go(source.base, folder, at=moment)
        assert (ran.status, ran.one.created, ran.one.patched) == (DONE, 1, number != len(STATES)), ran.notices
        assert (folder / "dataset.nq").read_bytes() == text_of(state)
        assert sorted(dataset.fetched()) == (PATCHES[:number] if number != len(STATES) else ["dataset.nq"])
        assert check(source.base, folder, at=moment).verdict == "in sync"
        assert is_clean(folder)
    ran = go(source.base, dest / "none", at=at(10.0), patches="off")
    assert (ran.status, ran.one.patched) == (FAILED, 0)


def test_an_earlier_state_that_patches_do_not_make_is_not_guessed(source: Source, dest: Path) -> None:
    dataset = history(source)
    gone(dataset)
    dataset.fetched()
    ran = go(source.base, dest, at=at(30.0))
    assert (ran.status, ran.one.failed) == (FAILED, 1)
    fetched = [one for one in dataset.fetched() if one in PATCHES]
    assert len(fetched) == len(set(fetched)), "nobody asks for them again"
    assert any(one.rule == "TIM-A6" and "404" in one.message for one in ran.notices), ran.notices
    assert is_clean(dest)


def test_what_patches_have_saved_is_told_where_they_have(
    source: Source, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history(source)
    assert cli(["sync", source.base, str(dest / "more"), "--patches", "all"]) == DONE
    assert "  1 by patches\n" in capsys.readouterr().out
    packed = gzip.compress(diff(set(), STATES[0]))
    Dataset(source).to(STATES[0], patch=packed).publish()
    saved = len(text_of(STATES[0])) - len(packed)
    assert go(source.base, dest / "json", patches="all").one.octets_saved == saved > 0
    assert cli(["sync", source.base, str(dest / "fewer"), "--patches", "all"]) == DONE
    assert f"  1 by patches: {human_octets(saved)} not transferred\n" in capsys.readouterr().out
