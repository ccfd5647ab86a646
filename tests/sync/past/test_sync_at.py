"""`sync --at`: copies of the past, by lists, archives, mementos and TimeGates (DST-S6, DST-S7, DST-S8, RS-ARC-34)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from headwater.cli import run
from headwater.sync.copy_status import copy_status
from headwater.transport.fetch import DeadlineMet
from tests.support.copying import DONE, FAILED, IMPATIENT, SOURCE, UNDETERMINED, go, tree
from tests.support.fake_source import Reply, Source, at, drip
from tests.sync.past.history import History, moment_of

USAGE = 2


@pytest.fixture
def past(source: Source) -> History:
    """A set that was edited for a while: a list at 10, changes up to 100, the present list at 90."""
    made = History(source)
    for number in range(4):
        made.put(1 + number, f"f{number}.txt", b"first %d" % number)
    made.put(20, "f0.txt", b"second")
    made.put(30, "new.txt", b"new")
    made.drop(40, "f1.txt")
    made.put(50.25, "f0.txt", b"third")
    made.put(50.75, "f0.txt", b"fourth")
    made.put(60, "f1.txt", b"again")
    made.drop(70, "new.txt")
    made.put(80, "f2.txt", b"last")
    return made


TIMES = (5, 10, 19.5, 20, 35, 45, 50, 50.5, 51, 60, 75, 85, 95)


def archived(past: History) -> str:
    past.snapshot(4.5, "/archive/first.xml")
    past.snapshot(55, "/archive/second.xml")
    past.changelist(0, 45, "/archive/changes-1.xml")
    past.changelist(45, 65, "/archive/changes-2.xml")
    past.snapshot(90)
    past.changelist(65, None)
    past.serve_versions()
    return past.publish()


def by_changes(past: History) -> str:
    past.snapshot(90)
    past.changelist(0, None)
    past.serve_versions()
    return past.publish()


@pytest.mark.parametrize("published", [archived, by_changes])
def test_the_copy_is_what_the_set_was(past: History, tmp_path: Path, published: Callable[[History], str]) -> None:
    url = published(past)
    for when in TIMES:
        ran = go(url, tmp_path / str(when), at=at(when))
        assert ran.status == DONE, (when, ran.error, ran.notices, ran.report)
        assert tree(tmp_path / str(when)) == past.at(when), when
        assert ran.report is not None
        assert ran.report.as_of == at(when)
        assert not ran.one.unverified


def test_a_change_list_that_ends_in_the_future_tells_of_none(past: History, tmp_path: Path, source: Source) -> None:
    """DST-C7: by the source's own clock, also where ours is ahead of it."""
    past.snapshot(90)
    past.changelist(0, 200)
    past.serve_versions()
    url = past.publish()
    source.date = lambda: moment_of(100)
    for when, status in ((95, DONE), (150, UNDETERMINED)):
        ran = go(url, tmp_path / str(when), at=at(when))
        assert ran.status == status, (when, ran.error, ran.notices)


def test_running_again_resumes_and_fetches_nothing_twice(past: History, tmp_path: Path, source: Source) -> None:
    url = archived(past)
    spoiled = source.pages.pop("/version/50.25/f0.txt")
    source.pages.pop("/timegate/f0.txt"), source.pages.pop("/timemap/f0.txt")
    ran = go(url, tmp_path / "copy", at=at(50.5))
    wanted = past.at(50.5)
    assert ran.status == FAILED
    assert [failed.uri for failed in ran.one.failures] == [past.site.uri("f0.txt")]
    assert tree(tmp_path / "copy") == {name: body for name, body in wanted.items() if name != "f0.txt"}
    source.pages["/version/50.25/f0.txt"] = spoiled
    source.forget()
    ran = go(url, tmp_path / "copy", at=at(50.5))
    assert ran.status == DONE
    assert tree(tmp_path / "copy") == wanted
    asked = [path for path in source.requests() if path.startswith(("/version/", "/timegate/", "/set/resources/"))]
    assert asked == ["/version/50.25/f0.txt"]


def test_a_run_that_meets_its_deadline_ends_there(past: History, tmp_path: Path, source: Source) -> None:
    """It is no fault of the set that was copied just then, beside which others would be."""

    url = archived(past)
    source.pages["/version/50.25/f0.txt"] = drip(b"x" * 100, 0.1)
    ran = go(url, tmp_path / "copy", replace(IMPATIENT, deadline_seconds=2.0), at=at(50.5))
    assert isinstance(ran.error, DeadlineMet)
    assert ran.status == SOURCE


def test_a_copy_of_the_past_is_of_one_moment_and_a_plain_run_brings_it_up_to_date(
    past: History, tmp_path: Path
) -> None:
    url, dest = archived(past), tmp_path / "copy"
    assert go(url, dest, at=at(35)).status == DONE
    status = copy_status(dest)
    assert status.as_of is not None
    assert status.exit_status == DONE
    assert go(url, dest, at=at(36)).status == USAGE
    assert tree(dest) == past.at(35)
    assert go(url, dest, max_delete=1.0).status == DONE
    assert tree(dest) == past.at(95)
    assert copy_status(dest).as_of is None
    ran = go(url, dest, at=at(35))
    assert ran.status == USAGE
    assert "follows the source" in str(ran.error)
    assert tree(dest) == past.at(95)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--at", "2026-01-01", "--follow", "1"), "--at excludes"),
        (("--at", "2026-01-01", "--moved"), "--at excludes"),
        (("--at", "2026-01-01T10:00:00"), "without a zone"),
        (("--at", "2999-01-01"), "in the future"),
    ],
)
def test_what_does_not_go_with_a_time(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["sync", source.base, str(tmp_path / "copy"), *arguments]) == USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_what_no_source_keeps_is_told_with_who_can_help(
    past: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has the octets any more: the user reads why, and who alone could have kept them."""
    past.snapshot(90)
    past.changelist(0, None)
    assert run(["sync", past.publish(), str(tmp_path / "copy"), "--at", at(35)]) == FAILED
    told = capsys.readouterr().err
    assert "failed: " in told
    assert "only the source can keep earlier states" in told


def test_a_dry_run_shows_it_and_makes_nothing(past: History, tmp_path: Path) -> None:
    ran = go(archived(past), tmp_path / "copy", at=at(35), dry_run=True)
    assert {action.path for action in ran.one.plan} == set(past.at(35))
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("when", [-5.0, 0.5])
def test_a_time_before_the_first_resource_is_refused(past: History, tmp_path: Path, when: float) -> None:
    ran = go(archived(past), tmp_path / "copy", at=at(when))
    assert ran.status == USAGE
    assert "nothing yet" in str(ran.error)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("what", ["archive", "archived list", "TimeGate"])
def test_who_was_not_heard_has_not_said_that_there_was_nothing(
    what: str, past: History, tmp_path: Path, source: Source
) -> None:
    """Only where every archive and every TimeGate has answered so."""
    url = archived(past)
    paths = [path for path in source.pages if path.startswith("/timegate/" if what == "TimeGate" else "/archive/")]
    if what == "TimeGate":
        past.snapshot(90)
        past.changelist(65, None)
        source.pages = {path: page for path, page in source.pages.items() if "archive" not in path}
        paths += ["/timemap/" + path.removeprefix("/timegate/") for path in paths]
    elif what == "archive":
        paths = [path for path in source.pages if "archive" in path and path not in paths]
    assert paths
    for path in paths:
        source.pages[path] = Reply(b"later", 503)
    ran = go(url, tmp_path / "copy", at=at(0.5))
    assert ran.status not in (USAGE, DONE)
    assert "nothing yet" not in f"{ran.error} {ran.report}"


def test_a_hole_is_told_and_what_is_there_is_right(past: History, tmp_path: Path, source: Source) -> None:
    """Changes from 45 to 65 are in no list: what may have changed there is asked for by TimeGate, and told."""
    past.snapshot(4.5, "/archive/first.xml")
    past.changelist(0, 45, "/archive/changes-1.xml")
    past.snapshot(90)
    past.changelist(65, None)
    past.serve_versions()
    ran = go(past.publish(), tmp_path / "copy", at=at(55))
    assert ran.status == UNDETERMINED
    assert "nothing tells of changes" in str(ran.one.fault)
    right = past.at(55)
    assert tree(tmp_path / "copy") == right  # the TimeGates know them all
    assert ran.one.unverified == len(right)
    assert {failed.uri for failed in ran.one.failures} == {past.site.uri("f1.txt")}


def test_without_versions_what_is_no_more_is_told(past: History, tmp_path: Path, source: Source) -> None:
    past.link = past.no_links
    past.snapshot(90)
    past.changelist(0, None)
    ran = go(past.publish(), tmp_path / "copy", at=at(35))
    right = past.at(35)
    assert ran.status == FAILED
    assert tree(tmp_path / "copy") == {"f3.txt": right["f3.txt"]}
    assert {failed.uri for failed in ran.one.failures} == {past.site.uri(name) for name in right if name != "f3.txt"}


def test_a_set_of_which_every_resource_has_changed_since_had_them_all(past: History, tmp_path: Path) -> None:
    """Its first states are in no change: that they were there is known, and what they were is not."""
    past.link = past.no_links
    past.snapshot(90)
    past.changes = [change for change in past.changes if change[0] > 15 and change[2] == "f0.txt"]
    past.states = {"f0.txt": past.states["f0.txt"]}
    past.snapshot(90)
    past.changelist(15, None)
    ran = go(past.publish(), tmp_path / "copy", at=at(16))
    assert ran.status == FAILED
    assert "in which state it was" in ran.one.failures[0].reason


def test_links_of_the_resource_itself_lead_to_its_timegate(past: History, tmp_path: Path, source: Source) -> None:
    past.link = past.no_links
    past.snapshot(90)
    past.changelist(0, None)
    past.serve_versions()
    url = past.publish()
    for name in past.states:
        body, link = past.at(1e9).get(name), f'<{source.base}/timegate/{name}>; rel="timegate"'
        source.pages[f"/set/resources/{name}"] = Reply(body or b"gone", 404 if body is None else 200, {"Link": link})
    ran = go(url, tmp_path / "copy", at=at(35))
    assert ran.status == DONE, ran.one
    assert tree(tmp_path / "copy") == past.at(35)


def test_without_hashes_versions_are_believed_and_told(source: Source, tmp_path: Path) -> None:
    past = History(source, hashes=False)
    past.put(1, "a", b"one")
    past.put(2, "b", b"same")
    past.put(20, "a", b"two")
    past.snapshot(90)
    past.changelist(0, None)
    past.serve_versions()
    ran = go(past.publish(), tmp_path / "copy", at=at(10))
    assert (ran.status, tree(tmp_path / "copy")) == (DONE, {"a": b"one", "b": b"same"})
    assert ran.one.unverified == len(ran.one.unverified_versions) > 0


def test_the_second_in_which_a_set_was_opened_means_its_opening(source: Source, tmp_path: Path) -> None:
    """HTTP knows whole seconds (AMB-26): the time that it has for the first state is before all. Others are as told."""
    past = History(source)
    past.put(4.25, "f0.txt", b"first")
    past.put(4.75, "f0.txt", b"second")
    past.snapshot(4.5, "/archive/first.xml")
    past.snapshot(90)
    past.changelist(4.5, None)
    past.serve_versions()
    url = past.publish()
    ran = go(url, tmp_path / "second", at=at(4))
    assert ran.status == DONE, (ran.error, ran.notices)
    assert tree(tmp_path / "second") == past.at(4.5) == {"f0.txt": b"first"}
    assert ran.report is not None
    assert (ran.report.as_of, ran.one.at) == (at(4), at(4.5))
    assert run(["audit", "-q", "--at", at(4), url, str(tmp_path / "second")]) == DONE
    for number, when in enumerate((3, 4.1)):
        ran = go(url, tmp_path / str(number), at=at(when))
        assert (ran.status, "nothing yet" in str(ran.error)) == (USAGE, True)
    assert go(url, tmp_path / "later", at=at(5)).status == DONE
    assert tree(tmp_path / "later") == past.at(5) == {"f0.txt": b"second"}
