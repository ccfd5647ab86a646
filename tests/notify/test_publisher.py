"""A source that tells hubs: `headwater serve` and `headwater hub` as processes, hubs that fail, kills."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
from tools.engines.launch import free_port

from headwater.spec.records import Entry
from tests.notify.hub_process import TOKEN, HubProcess
from tests.notify.subscriber import Answer, Came, Subscriber
from tests.support.documents import read_bytes
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(25)

FAST = 'batch_seconds = 0.02\ntoken = "a-token-of-the-tests"\n'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    one = HubProcess(tmp_path / "hub")
    yield one
    if one.process.poll() is None:
        one.kill()


@pytest.fixture
def far() -> Iterator[Subscriber]:
    """The far end: a subscriber, or a hub that answers as it is told."""
    one = Subscriber()
    yield one
    one.close()


class Served:
    """A source with a folder, as a process that can be killed and started again at the same address."""

    def __init__(self, folder: Path, hubs: list[str], settings: str = FAST, sets: str = "") -> None:
        self.files = folder / "files"
        self.files.mkdir()
        (self.files / "first.txt").write_text("first")
        self.config = folder / "source.toml"
        self._told = ", ".join(f'"{one}"' for one in hubs)
        self._settings, self._port = settings, free_port()
        self.configure(sets)
        self.start()
        self.topic = f"{self.url}files/changenotification.xml"

    def configure(self, sets: str) -> None:
        """Write the configuration, with more in its set, and more sets."""
        self.config.write_text(
            f'state = "state"\nport = {self._port}\nmetrics = true\n[notify]\nhubs = [{self._told}]\n{self._settings}'
            f'[[set]]\nfiles = "files"\nmax_delete = 1\n{sets}'
        )

    def start(self) -> None:
        self.process = Process("--quiet", str(self.config))
        self.url = self.process.ready().rstrip("/") + "/"

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.process.__exit__()

    def write(self, *names: str) -> None:
        for name in names:
            (self.files / name).write_text(f"content of {name}")

    def hubs(self) -> list[dict[str, object]]:
        return json.loads(request(self.url, "/health").body).get("hubs", [])  # type: ignore[no-any-return]

    def changes(self) -> list[Entry]:
        return read_bytes(request(self.url, "/files/changelist.xml").body)[1]


@contextmanager
def served(*about: object, **more: str) -> Iterator[Served]:
    one = Served(*about, **more)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.close()


def told(came: list[Came], capability: str = "change-notification") -> list[Any]:
    """The notifications that came, each once: one that came again had the same octets."""
    read = [read_bytes(body)[:2] for body in dict.fromkeys(one.body for one in came)]
    return [one for one in read if one[0].capability == capability]


def changes_at(far: Subscriber, path: str) -> list[Came]:
    """The Change Notifications that came."""
    return [one for one in far.deliveries(path) if is_change(one)]


def is_change(came: Came) -> bool:
    return b'"change-notification"' in came.body


def names(came: list[Came]) -> list[str]:
    return [entry.loc.rpartition("/")[2] for _, entries in told(came) for entry in entries]


def is_chain(came: list[Came]) -> bool:
    """Whether the intervals follow each other without a gap or an overlap (RS-CN-05, RS-CN-07)."""
    heads = [head for head, _ in told(came)]
    return all(after.from_ == before.until for before, after in itertools.pairwise(heads))


def test_an_edit_reaches_a_subscriber_through_a_hub(tmp_path: Path, hub: HubProcess, far: Subscriber) -> None:
    with served(tmp_path, [hub.url]) as source:
        empty = request(source.url, "/files/changenotification.xml", "HEAD")
        assert (empty.status, empty.headers["content-length"]) == (200, "0")  # RS-NT-02
        assert hub.ask("subscribe", source.topic, far.url + "/in")[0] == 202
        far.wait(lambda: hub.counts()["subscriptions"] == 1)

        source.write("a.txt")
        far.wait(lambda: "a.txt" in names(far.deliveries("/in")))
        (source.files / "a.txt").write_text("other content")
        far.wait(lambda: names(far.deliveries("/in")).count("a.txt") >= 2)
        (source.files / "a.txt").unlink()
        came = far.wait(lambda: [one] if (one := far.deliveries("/in")[-1]) and b'"deleted"' in one.body else None)[0]

        head, entries, warned = read_bytes(came.body)
        assert not warned
        assert head.capability == "change-notification"  # RS-CN-02, RS-CN-03
        assert None not in (head.from_, head.until)  # RS-CN-04
        assert all(one.datetime is not None for one in entries)  # else the reader would have warned of RS-CN-15
        assert [link.rel for link in head.links] == ["up"]  # RS-CN-08
        assert is_chain(far.deliveries("/in"))
        every = [entry for _, some in told(far.deliveries("/in")) for entry in some]
        assert every == source.changes()  # RS-CN-09…14: each change once, in order, as the Change List has it
        links = came.headers["link"]
        assert f'<{source.topic}>; rel="self"' in links
        assert f'<{hub.url}>; rel="hub"' in links
        assert f'<{source.url}files/capabilitylist.xml>; rel="resourcesync"' in links  # RS-NT-05

        for method in ("GET", "HEAD"):  # RS-NT-01, RS-NT-03, WS-P-01, WS-P-02
            topic = request(source.url, "/files/changenotification.xml", method)
            assert (topic.status, topic.headers["content-type"]) == (200, "application/xml")
            assert topic.headers["link"] == f'<{source.topic}>; rel="self", <{hub.url}>; rel="hub"'
            assert topic.body == (came.body if method == "GET" else b"")
        listed = read_bytes(request(source.url, "/files/capabilitylist.xml").body)[1]
        channel = next(one for one in listed if one.capability == "change-notification")  # RS-CH-01, RS-CH-05, RS-CH-07
        assert (channel.loc, [(one.rel, one.href) for one in channel.links]) == (source.topic, [("hub", hub.url)])
        until(lambda: source.hubs()[0]["waiting"] == 0)
        assert b"headwater_notify_waiting_changes" in request(source.url, "/metrics").body


def test_source_and_hub_are_killed_and_nothing_is_lost(tmp_path: Path, hub: HubProcess, far: Subscriber) -> None:
    with served(tmp_path, [hub.url]) as source:
        hub.ask("subscribe", source.topic, far.url + "/in")
        far.wait(lambda: hub.counts()["subscriptions"] == 1)
        hub.kill()
        source.write("a.txt", "b.txt")  # a dead hub never blocks publishing
        until(lambda: len(source.changes()) == 2)
        until(lambda: source.hubs()[0]["error_code"] == "HW-NTF-01")
        source.kill()
        source.start()
        source.write("c.txt")
        until(lambda: len(source.changes()) == 3)
        assert not far.deliveries("/in")
        hub.start()
        far.wait(lambda: len(names(far.deliveries("/in"))) >= 3)
        for number in range(2):
            source.write(*(f"{number}-{one}" for one in range(20)))
            (source if number != 1 else hub).kill()
            (source if number != 1 else hub).start()
        until(lambda: len(source.changes()) == 43)
        far.wait(lambda: len(names(far.deliveries("/in"))) >= 43)
        expected = [one.loc.rpartition("/")[2] for one in source.changes()]
        assert names(far.deliveries("/in")) == expected
        assert is_chain(far.deliveries("/in"))


ANSWERS = {
    "a lost answer": [Answer(200, b"", seconds=0.0), Answer(500, b"")],
    "crowded": [Answer(429, b"", {"retry-after": "1"}), Answer(503, b"", {"retry-after": "never"})],
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_failed_comes_again_with_the_same_octets(tmp_path: Path, far: Subscriber, case: str) -> None:
    answers = ANSWERS[case][::-1]
    far.answers["/hub"] = lambda came: answers.pop() if answers and is_change(came) else Answer(200, b"ok")
    with served(tmp_path, [f"{far.url}/hub"]) as source:
        source.write("a.txt")
        source.write("b.txt")
        far.wait(lambda: {"a.txt", "b.txt"} <= set(names(changes_at(far, "/hub"))))
        until(lambda: source.hubs()[0]["waiting"] == 0)
    came = changes_at(far, "/hub")
    assert sorted(names(came)) == ["a.txt", "b.txt"]  # once, however often it came
    assert is_chain(came)
    first = came[0]
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    assert first.headers["content-type"] == "application/xml"  # RS-NT-04, RS-CN-16
    assert f'<{far.url}/hub>; rel="hub"' in first.headers["link"]
    if case == "crowded":
        assert came[1].body == first.body
        assert came[1].at - first.at >= 1.0  # Retry-After


def test_each_hub_has_its_own_pace(tmp_path: Path, far: Subscriber) -> None:
    far.answers["/refuses"] = lambda _came: Answer(403, b"who are you?")
    far.answers["/moved"] = lambda _came: Answer(307, b"", {"location": f"{far.url}/elsewhere"})
    hubs = [f"{far.url}/{one}" for one in ("refuses", "moved", "takes")] + ["http://127.0.0.1:9/"]
    with served(tmp_path, hubs) as source:
        for name in ("a.txt", "b.txt"):
            source.write(name)
            far.wait(partial(lambda one: one in names(far.deliveries("/takes")), name))
        until(lambda: source.hubs()[2]["waiting"] == 0 and all(source.hubs()[one]["error_code"] for one in (0, 1, 3)))
        health, said = source.hubs(), source.process.stop()[1]
    assert [one["error_code"] for one in health] == ["HW-NTF-02", "HW-NTF-02", None, "HW-NTF-01"]
    assert not any(one.get("error") for one in health), "words are for the log"
    assert "who are you?" in said
    assert "it cannot be connected to: Connection refused (" in said
    assert [one["waiting"] for one in health] == [2, 2, 0, 2]
    assert len(changes_at(far, "/refuses")) == 1, "what was refused is sent again slowly"
    assert not [one for one in far.came if one.path == "/elsewhere"], "a token goes to no other place"


@pytest.mark.parametrize("status", [400, 415])
def test_a_hub_that_takes_no_payloads_is_told_of_the_topic(tmp_path: Path, far: Subscriber, status: int) -> None:
    """WS-P-03: as WebSub's usual hubs do, it fetches the topic, which shows what it has not taken."""
    form = urlencode({"hub.mode": "publish"}).encode()
    far.answers["/plain"] = lambda came: Answer(202 if came.body.startswith(form) else status, b"hub.mode is missing")
    far.answers["/neither"] = lambda _came: Answer(status, b"no")
    with served(tmp_path, [f"{far.url}/plain", f"{far.url}/neither"]) as source:
        for name in ("a.txt", "b.txt"):
            source.write(name)
            until(partial(lambda one: one.encode() in request(source.url, "/files/changenotification.xml").body, name))
            until(lambda: source.hubs()[0]["waiting"] == 0)
        until(lambda: source.hubs()[1]["error_code"])
        assert [one["error_code"] for one in source.hubs()] == [None, "HW-NTF-02"]
        topic = source.topic
    pings = [one for one in far.deliveries("/plain") if one.body.startswith(form)]
    assert {topic} <= {value for one in pings for value in parse_qs(one.body.decode())["hub.url"]}
    assert all(parse_qs(one.body.decode())["hub.topic"] == parse_qs(one.body.decode())["hub.url"] for one in pings)
    assert pings[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert len(changes_at(far, "/plain")) <= 1, "what it does not understand is not sent again"


def test_a_hub_that_has_taken_payloads_is_sent_a_refused_one_again(tmp_path: Path, far: Subscriber) -> None:
    """It answers 400 for once: a ping that it takes too would be all that its subscribers hear of."""
    refused: list[Came] = []

    def hub(came: Came) -> Answer:
        if not refused and b"b.txt" in came.body:
            refused.append(came)
            return Answer(400, b"not now")
        return Answer(200, b"")

    far.answers["/hub"] = hub
    with served(tmp_path, [f"{far.url}/hub"]) as source:
        source.write("a.txt")
        far.wait(lambda: "a.txt" in names(changes_at(far, "/hub")))
        source.write("b.txt")
        far.wait(lambda: [one.body for one in far.deliveries("/hub")].count(refused[0].body) == 2 if refused else False)
    assert not [one for one in far.deliveries("/hub") if one.body.startswith(b"hub.mode")]


def test_batches_by_count_and_time(tmp_path: Path, far: Subscriber) -> None:
    with served(tmp_path, [f"{far.url}/hub"], "batch_count = 5\nbatch_seconds = 1.5\n") as source:
        source.write(*(f"{one}.txt" for one in range(12)))
        until(lambda: len(source.changes()) == 12)
        source.write("x.txt")
        far.wait(lambda: len(names(changes_at(far, "/hub"))) == 13)
    came = changes_at(far, "/hub")
    sizes = [len(entries) for _, entries in told(came)]
    assert (max(sizes), sum(sizes)) == (5, 13)
    for before, after, size in zip(came, came[1:], sizes[1:], strict=False):
        assert size == 5 or after.at - before.at > 0.7, "few changes wait until the last notification is long ago"
    assert is_chain(came)


def test_a_hub_that_takes_only_short_payloads_fetches_the_others(tmp_path: Path, far: Subscriber) -> None:
    most, taken, pings = 6_000, list[Came](), list[Came]()

    def hub(came: Came) -> Answer:
        if len(came.body) > most:
            return Answer(413, b"too much")
        (pings if came.body.startswith(b"hub.mode") else taken).append(came)
        return Answer(200, b"")

    far.answers["/hub"] = hub
    with served(tmp_path, [f"{far.url}/hub"], "batch_seconds = 0.5\n") as source:
        source.write(*(f"{one:02}.txt" for one in range(60)))
        far.wait(lambda: pings)
        until(lambda: len(source.changes()) == 60 and source.hubs()[0]["waiting"] == 0)
        assert source.hubs()[0]["error"] is None
        source.write("x.txt")
        far.wait(lambda: "x.txt" in names(taken))
    assert is_chain(changes_at(far, "/hub"))


def test_a_change_in_two_sets_is_told_in_both_channels(tmp_path: Path, far: Subscriber) -> None:  # RS-CH-03
    with served(tmp_path, [f"{far.url}/hub"], sets='[[set]]\nname = "twin"\nfiles = "files"\n') as source:
        source.write("a.txt")
        far.wait(lambda: len(changes_at(far, "/hub")) == 2)
        topics = {one.headers["link"].partition(">")[0].removeprefix("<") for one in changes_at(far, "/hub")}
    assert topics == {source.topic, f"{source.url}twin/changenotification.xml"}  # RS-CH-01
    assert names(changes_at(far, "/hub")) == ["a.txt", "a.txt"]


def test_a_new_history_begins_a_chain_with_a_gap(tmp_path: Path, far: Subscriber) -> None:
    with served(tmp_path, [f"{far.url}/hub"]) as source:
        source.write("a.txt")
        far.wait(lambda: "a.txt" in names(changes_at(far, "/hub")))
        until(lambda: source.hubs()[0]["waiting"] == 0)
        source.kill()
        text = source.config.read_text()
        source.config.write_text(
            text.replace('files = "files"', 'files = "files"\nresource_base = "http://f.example/"')
        )
        source.start()
        source.write("b.txt")
        far.wait(lambda: "b.txt" in names(changes_at(far, "/hub")))
        before, *_, after = [head for head, _ in told(changes_at(far, "/hub"))]
        assert after.from_ > before.until  # RS-CN-07: the gap leads subscribers to the Change List


def test_one_process_publishes_and_sends_another_serves_the_topic(tmp_path: Path, far: Subscriber) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    config, port = tmp_path / "source.toml", free_port()
    config.write_text(
        f'state = "state"\nport = {port}\nbase_url = "http://127.0.0.1:{port}"\n'
        f'[notify]\nhubs = ["{far.url}/hub"]\n[[set]]\nfiles = "files"\n'
    )
    run = [sys.executable, "-m", "headwater", "publish", str(config), "--watch"]
    publishing = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Process("--quiet", "--no-publish", str(config)) as serving:
            url = serving.ready()
            (tmp_path / "files" / "b.txt").write_text("b")
            far.wait(lambda: changes_at(far, "/hub"))
            topic = request(url, "/files/changenotification.xml")
            assert topic.body == changes_at(far, "/hub")[-1].body
    finally:
        publishing.terminate()
        publishing.wait(20)


def test_requests_that_fail_at_one_time_are_one_failure(tmp_path: Path, far: Subscriber) -> None:
    """A hub that was away for a moment is asked soon, however many sets had news for it."""
    folders = [f"s{one}" for one in range(8)]
    for one in folders:
        (tmp_path / one).mkdir()
        (tmp_path / one / "first.txt").write_text("first")
    down = True
    far.answers["/hub"] = lambda _came: Answer(503, b"", seconds=0.5) if down else Answer(200, b"")
    sets = "".join(f'[[set]]\nname = "{one}"\nfiles = "{one}"\n' for one in folders)
    with served(tmp_path, [f"{far.url}/hub"], sets=sets):
        far.wait(lambda: len(far.deliveries("/hub")) >= 8)
        failed = len({one.body for one in far.deliveries("/hub")})
        down = False
        far.wait(lambda: len({one.body for one in far.deliveries("/hub")}) > failed)
    came = far.deliveries("/hub")
    pauses = [after.at - before.at for before, after in itertools.pairwise(came)]
    assert max(pauses) < 40.0, "eight failures in a row would be a minute"
