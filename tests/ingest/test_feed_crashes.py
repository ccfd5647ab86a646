"""What is announced happens exactly once, whatever is cut off where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.dit.documents import read_document
from headwater.ingest.dit.intake import take_documents
from headwater.ingest.push.submission import BadKey, KeyUnderWay, Submission
from tests.support.push_set import PushSet, change, resource
from tests.support.waiting import until


class PowerCut(Exception):
    """The process ends here."""


STEPS = [
    ("catalog", "rows", "after"),
    ("catalog", "record", "before"),
    ("catalog", "record", "after"),
]


def cut(fed: PushSet, where: str, step: str, moment: str, turn: int) -> None:
    """Let the power fail at a step, the `turn`th time that it comes."""
    target = getattr(fed, where)
    real = getattr(target, step)
    left = [turn]

    def failing(*arguments: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == 0 and moment == "before":
            raise PowerCut
        result = real(*arguments, **options)
        if left[0] == 0:
            raise PowerCut
        return result

    setattr(target, step, failing)


@pytest.mark.parametrize(("where", "step", "moment"), STEPS)
@pytest.mark.parametrize("turn", [1, 2])
def test_a_submission_that_is_cut_off_is_finished_by_its_repetition(
    tmp_path: Path, where: str, step: str, moment: str, turn: int
) -> None:
    body = b"".join(b'{"path":"%d","change":"updated"}\n' % number for number in range(1_700))
    fed = PushSet(tmp_path)
    cut(fed, where, step, moment, turn)
    with pytest.raises(PowerCut):
        submit(fed, body)
    fed.close()
    fed = PushSet(tmp_path)
    answer = submit(fed, body)
    assert len(fed.log()) == 1_700
    assert [one["seq"] for one in answer["results"]] == list(range(1, 1_701))
    assert submit(fed, body) == answer
    with pytest.raises(BadKey):
        submit(fed, body[:-1_000])
    assert len(fed.log()) == 1_700
    fed.close()


def submit(fed: PushSet, body: bytes) -> dict[str, list[dict[str, int]]]:
    submission = Submission(fed.feed, "key")
    submission.push(body)
    submission.finish()
    answer: dict[str, list[dict[str, int]]] = json.loads(submission.body)
    return answer


@pytest.mark.parametrize(("where", "step", "moment"), STEPS)
def test_documents_that_are_cut_off_are_taken_once_when_they_are_read_again(
    tmp_path: Path, where: str, step: str, moment: str
) -> None:
    """With the position of their feed: what was not committed is read again, what was is known again (DIT-A12)."""
    sources = [one for n in range(20) for one in (resource(f"{n}", n), change(f"{n}", "created", n))]
    sources += [change("0", "deleted", 50), resource("half", 1)]
    documents = [(line, read_document(one)) for line, one in enumerate(sources, 1)]
    fed = PushSet(tmp_path)
    cut(fed, where, step, moment, 1)
    with pytest.raises(PowerCut):
        take_documents(fed.feed, documents, positions={"feed": b"42"})
    fed.close()
    fed = PushSet(tmp_path)
    if fed.feed.state.position("feed") is None:
        take_documents(fed.feed, documents, positions={"feed": b"42"})
    assert fed.feed.state.position("feed") == b"42"
    fed.documents(change("half", "created", 1))
    fed.settle()
    assert sorted(uri for kind, uri in fed.log() if kind == "created") == sorted([*map(str, range(20)), "half"])
    assert len(fed.log()) == 22
    fed.close()


def test_a_process_that_is_killed_again_and_again_takes_every_line_once(tmp_path: Path) -> None:
    count = 12_000
    lines = b"".join(b'{"path":"%d","change":"updated"}\n' % (number % 4_000) for number in range(count))
    (tmp_path / "events").write_bytes(lines)
    state = tmp_path / "state"
    command = [sys.executable, "-m", "headwater", "ingest", "events", str(tmp_path / "events"), "--set", "s"]
    command += ["--state", str(state), "--url-prefix", "http://example.org/", "--key", "k", "--json"]
    environment = {**os.environ, "PYTHONDEVMODE": ""}
    for number in range(1, 4):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        wait_for(state, number * 2_000, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, check=True, env=environment, timeout=120)
    told = json.loads(done.stdout)
    assert (told["lines"], told["taken"], told["first_seq"], told["last_seq"]) == (count, count, 1, count)
    catalog = SqliteCatalog(state / "catalog.sqlite")
    changes = [one for start in range(0, count, 5_000) for one in catalog.changes("s", start, 5_000)]
    assert [one.uri for one in changes] == [str(number % 4_000) for number in range(count)]
    catalog.close()


def wait_for(state: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    """Until so many changes are recorded, or the process has ended."""

    def recorded() -> bool:
        if not (state / "catalog.sqlite").exists():
            return False
        with closing(SqliteCatalog(state / "catalog.sqlite")) as catalog:
            return any(one.last_seq >= count for one in catalog.sets())

    until(lambda: process.poll() is not None or recorded(), pause=0.01)


@pytest.mark.parametrize("ahead", [999, 1_000, 1_700])
def test_two_requests_with_one_key_take_nothing_twice(tmp_path: Path, ahead: int) -> None:
    """The slower one is refused at whatever batch it meets what the other has taken."""
    lines = [b'{"path":"%d","change":"updated"}\n' % number for number in range(2_500)]
    fed = PushSet(tmp_path)
    slow, fast = Submission(fed.feed, "key"), Submission(fed.feed, "key")
    slow.push(b"".join(lines[:1_000]))
    with pytest.raises(KeyUnderWay):
        fast.push(b"".join(lines))
    again = Submission(fed.feed, "key")
    again.push(b"".join(lines[:ahead]))
    again.push(b"".join(lines[ahead:]))
    with pytest.raises(KeyUnderWay):
        slow.push(b"".join(lines[1_000:]))
    again.finish()
    assert [uri for _, uri in fed.log()] == [f"{number}" for number in range(2_500)][: len(fed.log())]
    assert fed.catalog.state("s").last_seq == 2_500
    fed.close()
