"""Hosts that feed one set on a real cluster, paused and killed at every step: what was announced happens once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.engines.engine import Engine

from headwater.errors import HeadwaterError
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.submission import BadKey, Submission
from tests.catalog.cluster_ground import Ground, count_pauses
from tests.ingest.cluster_taker import MANY, fed, lines_of, submit
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)


class Taker:
    """A `cluster_taker`, held at the first of its steps."""

    def __init__(self, place: str, key: str, steps: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.ingest.cluster_taker", place, key, *steps],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def word(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> str:
        """Let it go on, to the next word."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.word()

    def close(self) -> None:
        """End it with -9, whatever it does."""
        self.process.kill()
        self.process.wait(60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def ground(opensearch: Engine) -> Iterator[Ground]:
    ground = Ground(opensearch)
    yield ground
    ground.remove()


def persistently(feed: Feed, key: str) -> list[int]:
    """Send it as a client does: again until it is taken. The numbers of its changes, as they are answered."""
    answers: list[bytes] = []

    def taken() -> bool:
        try:
            answers.append(submit(feed, key))
        except HeadwaterError as fault:
            assert fault.code in {"HW-ING-52", "HW-CAT-12"}, fault  # noqa: PT017
            return False
        return True

    until(taken, what="an answer")
    return [one["seq"] for one in json.loads(answers[0])["results"]]


def look(feed: Feed) -> None:
    """See how the set is, and record nothing."""
    feed.request("another")


def take_other(feed: Feed) -> None:
    persistently(feed, "other")


def take_same(feed: Feed) -> None:
    persistently(feed, "key")


CASES = [
    # A paused process is found by the others at one step, goes on, and is killed at a later one.
    ("record", look, "put"),
    ("record", look, "finish"),
    ("record", take_same, ""),
    ("record", take_other, "finish"),
    ("record", take_other, ""),
    ("put", look, "finish"),
    ("put", take_same, ""),
    ("put", take_other, "finish"),
    ("finish", look, ""),
    ("finish", take_same, ""),
    ("finish", take_other, ""),
]


@pytest.mark.parametrize(("step", "rival", "last"), CASES)
def test_what_a_process_does_that_was_paused_happens_once(ground: Ground, step: str, rival: object, last: str) -> None:
    """Others have gone first, and it does not know (`SIGSTOP`); then it goes on, or ends (`SIGKILL`)."""
    assert callable(rival)
    with ExitStack() as stack:
        feed = stack.enter_context(fed(ground.place))
        feed.open()
        taker = Taker(ground.place, "key", [step, last] if last else [step])
        stack.callback(taker.close)
        assert taker.word() == "held"
        taker.process.send_signal(signal.SIGSTOP)
        rival(feed)
        taker.process.send_signal(signal.SIGCONT)
        if last and taker.go_on() == "held":
            taker.close()
        elif not last:
            taker.go_on()
        told = {key: persistently(feed, key) for key in ("key", "other", "third")}
        log = feed.catalog.changes("s")
        assert {key: [one.seq for one in log if one.uri in lines_of(key)] for key in told} == told
        assert sorted(one.uri for one in log) == sorted(uri for key in told for uri in lines_of(key))


def test_what_a_killed_process_held_is_waited_for_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the lease to write to the set: others wait for that, and take the whole."""
    slept = count_pauses(monkeypatch)
    place = ground.place.replace("lease_seconds=1.0", "lease_seconds=4")
    with fed(place) as feed:
        feed.open()
        taker = Taker(place, "many", ["commit"])
        assert taker.word() == "held"
        taker.close()
        assert persistently(feed, "many") == list(range(1, MANY + 1))
    assert 3 < max(slept.values()) < 7


def test_a_key_that_was_used_takes_no_other_body(ground: Ground) -> None:
    """Nor in another process, as after a restart; the same body gets the first outcome."""
    body = b"".join(b'{"path":"%d","change":"updated"}\n' % number for number in range(1_200))
    other = body.replace(b'"1199"', b'"9911"')
    answers = []
    for octets in (body, other, body):
        with fed(ground.place) as feed:
            feed.open()
            submission = Submission(feed, "key")
            submission.push(octets)
            if octets == other:
                with pytest.raises(BadKey):
                    submission.finish()
            else:
                submission.finish()
                answers.append(submission.body)
            assert len(list(feed.catalog.changes("s"))) == 1_200
    assert answers[0] == answers[1]
