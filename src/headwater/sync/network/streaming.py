"""A streamed response: read chunk by chunk with bounded memory, back-pressure, and digests at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from headwater.errors import SourceFault
from headwater.files.hashing import HASHERS
from headwater.sync.network.authentication import Presented
from headwater.sync.network.response import ResponseReceiver
from headwater.sync.network.scheduler import ScheduledFetch

PAUSE_OCTETS = 256 * 1024
"""A stream whose reader is this far behind is paused."""


class StreamBroken(SourceFault):
    """A streamed answer ended before its body was complete."""

    code = "HW-NET-01"
    passing = True
    """Whether another try may succeed."""


class StreamReceiver(ResponseReceiver):
    """Hands a 2xx body on chunk by chunk, and asks libcurl to pause while its reader is behind."""

    def __init__(self, pause: int) -> None:
        super().__init__()
        self.ready: deque[bytes] = deque()
        self.waiting_octets = 0
        self.paused = False
        self._pause = pause

    def body(self, chunk: bytes) -> int | None:
        if not self.delivering:
            self.read_head()
            if self.failure is not None:
                return 0
            if not 200 <= self.status < 300:
                return super().body(chunk)
            self.delivering = True
            self.hashers = [(name, HASHERS[name]()) for name in self.fetch.algorithms]
        if self.waiting_octets >= PAUSE_OCTETS:
            self.paused = True
            return self._pause
        self.octets += len(chunk)
        if not self.goes_on():
            return 0
        for _, hasher in self.hashers or ():
            hasher.update(chunk)
        self.ready.append(chunk)
        self.waiting_octets += len(chunk)
        return None

    def complete(self) -> tuple[bytes, dict[str, str]]:
        if not 200 <= self.status < 300:
            return super().complete()
        hashers = self.hashers or [(name, HASHERS[name]()) for name in self.fetch.algorithms]
        return b"", {name: hasher.hexdigest() for name, hasher in hashers}

    def take(self) -> bytes:
        """What has come in, in one piece."""
        octets = self.ready[0] if len(self.ready) == 1 else b"".join(self.ready)
        self.ready.clear()
        self.waiting_octets = 0
        return octets


class OpenedStream:
    """A stream that was asked for: its answer, as soon as the head is there. Close it."""

    def __init__(
        self,
        job: ScheduledFetch,
        reception: StreamReceiver,
        turn: Callable[[StreamReceiver], None],
        carry_on: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._job = job
        self._reception = reception
        self._turn = turn
        self._carry_on = carry_on
        self.close = close
        """Give up what has not come yet."""

    def answer(self) -> StreamedAnswer:
        """Wait until the head of the final answer is there, or the fetch has failed for good."""
        while not self._job.run.done and not self._reception.delivering:
            self._turn(self._reception)
        return StreamedAnswer(self._job, self._reception, self._carry_on)


class StreamedAnswer:
    """The answer to `Transport.stream`: its head at once, its body as an iterator of chunks, its digests at the end.

    `status` is 0 and `failure` set when there is no answer; `body` holds the text of an answer that is no 2xx.
    """

    def __init__(self, job: ScheduledFetch, reception: StreamReceiver, carry_on: Callable[[], None]) -> None:
        self._run = job.run
        self._reception = reception
        self._carry_on = carry_on
        done = job.run.done[0] if job.run.done else None
        self.status = done.status if done else reception.status
        self.uri = job.uri
        self.headers = done.headers if done else reception.headers
        self.failure = done.failure if done and not reception.delivering else None  # one in the body comes in its place
        self.body = done.body if done else b""
        self.presented = done.presented if done else Presented.NOTHING
        self.retry_after_seconds = done.retry_after_seconds if done else None
        self.moved_to = job.moved_to
        self.octets = 0
        self.digests: dict[str, str] = {}

    def __iter__(self) -> Iterator[bytes]:
        """The body of a 2xx as received; raises `StreamBroken` when it ends before it is complete."""
        reception, run = self._reception, self._run
        while reception.ready or not run.done:
            while reception.ready:
                chunk = reception.take()
                self.octets += len(chunk)
                yield chunk
            if not run.done:
                self._carry_on()
        done = run.done[0]
        self.failure = done.failure
        self.digests = done.digests
        if done.failure is not None:
            broken = StreamBroken(done.failure.text, where=done.uri, rule=f"transport {done.failure.kind}")
            broken.passing = done.failure.passing
            raise broken
