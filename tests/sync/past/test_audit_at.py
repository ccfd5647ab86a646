"""`audit --at`: a folder compared with what the set was, by the evidence that `sync --at` goes by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.cli import run
from tests.support.copying import DONE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Source, at
from tests.sync.past.history import History

FINDINGS, USAGE = 1, 2


@pytest.fixture
def past(source: Source) -> History:
    """A set of three files: one changed at 20, one deleted at 30, one made at 40; the present list is of 50."""
    made = History(source)
    for number in range(3):
        made.put(1 + number, f"f{number}.txt", b"first %d" % number)
    made.put(20, "f0.txt", b"second")
    made.drop(30, "f1.txt")
    made.put(40, "new.txt", b"new")
    made.snapshot(50)
    made.serve_versions()
    return made


def published(past: History, since: float = 0) -> str:
    past.changelist(since, None)
    return past.publish()


@pytest.mark.parametrize("when", [10, 25, 35, 45])
def test_a_copy_of_the_past_is_in_sync_with_its_moment_and_no_other(past: History, tmp_path: Path, when: float) -> None:
    """DST-Q, by the lists of then: nothing is fetched but documents, and nothing is written."""
    url = published(past)
    dest = tmp_path / "then"
    assert go(url, dest, at=at(when)).status == DONE
    for other in (10, 25, 35, 45):
        report = check(url, dest, at=at(other))
        same = past.at(other) == past.at(when)
        assert (report.verdict, report.as_of) == ("in sync" if same else "not in sync", at(other)), other
        (one,) = report.sets
        right, held = past.at(other), tree(dest)
        assert one.missing == len(right.keys() - held.keys())
        assert one.extra == len(held.keys() - right.keys())
        assert one.different == sum(held[name] != right[name] for name in right.keys() & held.keys())


def test_damage_and_foreign_files_are_found(past: History, tmp_path: Path) -> None:
    url = published(past)
    dest = tmp_path / "then"
    assert go(url, dest, at=at(25)).status == DONE
    (dest / "f0.txt").write_bytes(b"SECOND")
    (dest / "f1.txt").unlink()
    (dest / "other.txt").write_bytes(b"?")
    (one,) = check(url, dest, at=at(25)).sets
    assert (one.same, one.different, one.missing, one.extra) == (1, 1, 1, 1)


def test_a_folder_that_no_run_has_made_is_compared_too(past: History, tmp_path: Path) -> None:
    url = published(past)
    for name, octets in past.at(35).items():
        (tmp_path / name).write_bytes(octets)
    assert check(url, tmp_path, at=at(35)).exit_status == DONE
    assert check(url, tmp_path, at=at(45)).exit_status == FINDINGS


def test_what_nobody_can_tell_is_neither_missing_nor_too_much(past: History, tmp_path: Path) -> None:
    """Changes from 25 on alone are told: before, only what rested since is known."""
    url = published(past, since=25)
    for name, octets in past.at(15).items():
        (tmp_path / name).write_bytes(octets)
    report = check(url, tmp_path, at=at(15))
    assert report.exit_status == UNDETERMINED
    assert "nothing tells of changes" in (report.sets[0].reason or "")
    assert (report.sets[0].missing, report.sets[0].different, report.sets[0].extra) == (0, 0, 0)


def test_a_moment_that_is_none_is_told(past: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = published(past)
    for wrong in ("9998-01-01T00:00:00Z", "yesterday", "2026-01-01T00:00:00"):
        assert run(["audit", "--at", wrong, url, str(tmp_path)]) == USAGE
    capsys.readouterr()
    assert go(url, tmp_path / "then", at=at(25)).status == DONE
    assert run(["audit", "--json", "--at", at(25), url, str(tmp_path / "then")]) == DONE
    assert json.loads(capsys.readouterr().out)["as_of"] == at(25)
    assert run(["audit", "--at", at(25), url, str(tmp_path / "then")]) == DONE
    assert f"in sync as of {at(25)}" in capsys.readouterr().out


def test_another_time_than_that_of_the_copy_is_told(
    past: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No advice leads to an error, or to what takes the copy of the past away without a word."""
    url = published(past)
    then, present = tmp_path / "then", tmp_path / "present"
    assert go(url, then, at=at(10)).status == go(url, present).status == DONE
    told = {}
    for dest, options in ((then, ["--at", at(45)]), (then, []), (present, ["--at", at(10)])):
        assert run(["audit", url, str(dest), *options]) == FINDINGS
        told[dest.name, len(options)] = capsys.readouterr().out
    assert (
        f"is as of {at(10)}: `headwater sync --at {at(45)}` makes one of that time, in another folder"
        in told["then", 2]
    )
    assert f"this is a copy as of {at(10)}: `headwater audit --at {at(10)}`" in told["then", 0]
    assert f"is of no time: `headwater sync --at {at(10)}` makes one" in told["present", 2]
    (then / "f0.txt").write_bytes(b"SECOND")
    assert run(["audit", url, str(then), "--at", at(10)]) == FINDINGS
    assert "with the same time fetches" in capsys.readouterr().out
