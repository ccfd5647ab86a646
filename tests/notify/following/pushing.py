"""The other side of a subscriber: a source with channels, a hub that does as it is told, and a copy that follows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

from headwater.http.follow_push import PushOptions, follow_push
from headwater.notify.websub import SignatureMethod, signature
from headwater.progress import Notice
from headwater.spec.kinds import Kind
from headwater.sync.options import SyncOptions
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask
from headwater.sync.sets.polling import PollInterval
from tests.support.fake_source import Handler, Reply, Site, Source, at, document, ln, url
from tests.support.waiting import until

CHANGES, FRAMEWORK = Kind.CHANGE_NOTIFICATION.value, Kind.FRAMEWORK_NOTIFICATION.value


@dataclass
class Asked:
    """One request to the hub."""

    fields: dict[str, str]

    @property
    def callback(self) -> str:
        return self.fields["hub.callback"]

    @property
    def secret(self) -> bytes:
        return self.fields.get("hub.secret", "").encode()


@dataclass
class Hub:
    """A hub on a fake source's server: accepts what is asked, verifies it with `lease`, and delivers when told to."""

    source: Source
    path: str = "/hub"
    lease: str | None = "1000"
    status: int = 202
    verifies: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    answers: list[tuple[str, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source.posts[self.path] = self._post

    @property
    def url(self) -> str:
        return self.source.base + self.path

    def _post(self, handler: Handler) -> Reply:
        fields = {name: values[-1] for name, values in parse_qs(handler.body.decode()).items()}
        asked = Asked(fields)
        self.asked.append(asked)
        if self.status == 202 and self.verifies:
            threading.Thread(target=self._verify, args=(asked,), daemon=True).start()
        return Reply(b"as told", self.status, self.headers, etag=False)

    def _verify(self, asked: Asked) -> None:
        with suppress(URLError, ConnectionError):  # who asked has ended meanwhile
            self.verify(asked)

    def verify(self, asked: Asked, challenge: str = "a challenge", **more: str) -> tuple[int, bytes]:
        mode = asked.fields["hub.mode"]
        told = {"hub.mode": mode, "hub.topic": asked.fields["hub.topic"], "hub.challenge": challenge}
        if self.lease is not None and mode == "subscribe":
            told["hub.lease_seconds"] = self.lease
        answer = get(asked.callback, told | {f"hub.{name}": value for name, value in more.items()})
        self.answers.append((mode, *answer))
        return answer

    def of(self, topic: str, mode: str = "subscribe") -> list[Asked]:
        return [one for one in self.asked if one.fields["hub.topic"] == topic and one.fields["hub.mode"] == mode]

    def subscription(self, topic: str) -> Asked:
        """The newest subscription to a topic, once its intent was confirmed."""
        until(lambda: self.of(topic) and any(mode == "subscribe" and status == 200 for mode, status, _ in self.answers))
        return self.of(topic)[-1]

    def deliver(self, topic: str, body: bytes, **more: Any) -> int:
        asked = self.subscription(topic)
        links = f'<{self.url}>; rel="hub", <{topic}>; rel="self"'
        return post(asked.callback, body, {"Link": links} | signed(asked.secret, body) | more)


def signed(secret: bytes, body: bytes, method: SignatureMethod = SignatureMethod.SHA256) -> dict[str, str]:
    return {"X-Hub-Signature": signature(secret, body, method)}


def get(callback: str, query: dict[str, str]) -> tuple[int, bytes]:
    return _answer(Request(f"{callback}?{urlencode(query)}"))


def post(callback: str, body: bytes, headers: dict[str, str]) -> int:
    return _answer(Request(callback, body, {"Content-Type": "application/xml"} | headers))[0]


def _answer(request: Request) -> tuple[int, bytes]:
    try:
        with urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read()


class PushedSite(Site):
    """A set with channels: `notification` makes the payload of what was changed since the last one."""

    def __init__(self, source: Source, name: str = "set") -> None:
        super().__init__(source, name)
        self.told = 0.0
        self.until = 0.0

    def topic(self, kind: str = CHANGES) -> str:
        return f"{self.root}/{kind}.xml"

    def advertise(self, *hubs: str, kinds: tuple[str, ...] = (CHANGES,)) -> None:
        """A Capability List with channels, and topics that answer (RS-CH-05, RS-NT-01)."""
        entries = [url(f"{self.root}/{name}.xml", capability=name) for name in ("resourcelist", "changelist")]
        for kind in kinds:
            links = "".join(ln("hub", hub) for hub in hubs)
            entries.append(url(self.topic(kind), links=links, capability=kind))
            said = ", ".join([f'<{self.topic(kind)}>; rel="self"', *(f'<{hub}>; rel="hub"' for hub in hubs)])
            self.serve(urlsplit(self.topic(kind)).path, b"", Link=said)
        up = ln("up", f"{self.source.base}/.well-known/resourcesync")
        body = document(entries, links=up, capability="capabilitylist")
        self.serve(f"/{self.name}/capabilitylist.xml", body)

    def described(self, *names: str) -> Reply:
        """A Source Description with these sets."""
        entries = [url(f"{self.source.base}/{one}/capabilitylist.xml", capability="capabilitylist") for one in names]
        return Reply(document(entries, capability="description"))

    def tell_documents(self, hub: Hub, *documents: str, capability: str) -> None:
        """A Framework Notification of documents that were updated (RS-FN-05, RS-FN-06)."""
        self.clock += 1
        entries = [url(one, change="updated", capability=capability, datetime=at(self.clock)) for one in documents]
        body = document(entries, capability=FRAMEWORK, **{"from": at(self.clock - 1), "until": at(self.clock)})
        assert hub.deliver(self.topic(FRAMEWORK), body) == 202

    def notification(self, capability: str = CHANGES, links: str = "") -> bytes:
        """All changes since the last notification; the Change List stays as stale as it is."""
        entries = [self.change(*change) for change in self.changes if change[0] > self.told]
        from_, self.told, self.until = self.until, self.clock, self.clock
        said = {"capability": capability, "from": at(from_), "until": at(self.until)}
        return document(entries, links=links or self.up(), **said)


def pushed_site(
    source: Source, *hubs: str, name: str = "set", files: int = 3, kinds: tuple[str, ...] = (CHANGES,)
) -> PushedSite:
    """A set with some files, published, with channels at these hubs; nothing was notified yet."""
    site = PushedSite(source, name)
    for number in range(files):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.clock = site.told = site.until = 10.0
    site.publish(since=10.0)
    site.advertise(*hubs, kinds=kinds)
    return site


class Following:
    """Copies that are followed by push, in a thread of this process."""

    def __init__(self, *copies: tuple[str, Path], seconds: float = 30.0, **push: Any) -> None:
        self.notices: list[Notice] = []
        self.reports: list[SyncReport] = []
        self.callbacks = ""
        self.fault: BaseException | None = None
        self._options = push.pop("options", {})
        self._copies, self._seconds, self._push = copies, seconds, push
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        def heard(event: object) -> None:
            if isinstance(event, Notice):
                self.notices.append(event)

        def listening(callbacks: str, _address: str) -> None:
            self.callbacks = callbacks
            self._ready.set()

        options = SyncOptions(patient=True, retries=0, **self._options)
        tasks = [SyncTask(url=one, destination=where, options=options, listener=heard) for one, where in self._copies]
        try:
            interval = PollInterval(self._seconds, self._push.pop("longest", None))
            push = PushOptions(on_listening=listening, **self._push)
            follow_push(tasks, interval, self.reports.append, push, stop=self._stop)
        except BaseException as fault:  # noqa: BLE001  raised where the thread is waited for
            self.fault = fault
        finally:
            self._ready.set()

    def __enter__(self) -> Following:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.fault is not None:
            raise self.fault

    def heard(self, words: str) -> bool:
        return any(words in one.message for one in self.notices)

    def at_work(self) -> None:
        """Wait until push is at work, and what it has to catch up with is done."""
        try:
            until(lambda: self.heard("push is at work"), 30)
        except AssertionError as late:
            told = [f"{one.rule}: {one.message} ({one.where})" for one in self.notices]
            raise AssertionError(f"{late}; reports: {len(self.reports)}, fault: {self.fault}, told: {told}") from None

    def at_rest(self) -> None:
        """Wait until the one subscription holds, and the poll that follows upon that is done."""
        self.at_work()
        until(lambda: len(self.reports) > 1)


@contextmanager
def following(*copies: tuple[str, Path], **more: Any) -> Iterator[Following]:
    with Following(*copies, **more) as one:
        yield one


def text(path: Path) -> str | None:
    """What a file of the copy has, where it is there."""
    return path.read_text() if path.exists() else None


def polls(site: PushedSite) -> int:
    """How often the Change List was asked for."""
    return len(site.source.requests("/set/changelist.xml"))
