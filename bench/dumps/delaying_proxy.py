"""A TCP proxy that delivers what comes back a fixed time later: the latency of a distant source, on one machine.

`python -m bench.dumps.delaying_proxy HOST:PORT --milliseconds 20` prints the address that it listens on and forwards
every connection until it is ended. What clients send passes at once; each piece of what the server sends is delivered
so much after it came. So every answer's first octet is late by one delay, and connections and throughput are as they
are without it. One thread and one queue: with an equal delay for all, what came first is due first.
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

PIECE = 1 << 18
MOST_WAITING = 1 << 26
"""Octets of one connection that are held back: 20 ms of them at 3 GB/s. Above that the server has to wait."""
EARLY_SECONDS = 0.0005
"""`epoll` knows whole milliseconds: what is due so soon is delivered rather than waited for once more."""
READ, WRITE = select.EPOLLIN, select.EPOLLOUT


@contextlib.contextmanager
def delayed(address: str, milliseconds: float, port: int = 0) -> Iterator[str]:
    """The URL of a proxy in a process of its own, in front of `address` (HOST:PORT)."""
    command = [sys.executable, "-m", __name__, address, "--milliseconds", str(milliseconds), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Side:
    """One socket of a pair, and what waits to be sent to it."""

    def __init__(self, end: socket.socket, *, is_client: bool) -> None:
        end.setblocking(False)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end = end
        self.number = end.fileno()
        self.is_client = is_client
        self.other: Side = self
        self.unsent: deque[bytes] = deque()
        self.waiting = 0
        """Octets that this socket is still to get, those held back included."""
        self.watched = 0
        """The events that the poll is told to watch for; a socket that is watched for none is not registered."""
        self.is_paused = False
        self.is_at_end = False
        """Nothing more can be received from it."""
        self.is_closed = False
        self.ends_after = False
        """It is closed when it has got all that waits."""


class DelayingProxy:
    """Forwards connections between a listener and one server, and holds back what the server sends."""

    def __init__(self, listener: socket.socket, server: tuple[str, int], seconds: float) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._server = server
        self._seconds = seconds
        self._poll = select.epoll()
        self._poll.register(listener.fileno(), READ)
        self._sides: dict[int, Side] = {}
        self._late: deque[tuple[float, Side, bytes]] = deque()

    def run(self) -> None:
        """Forward until the process is ended."""
        listening = self._listener.fileno()
        while True:
            wait = max(0.0, self._late[0][0] - time.perf_counter()) if self._late else -1
            for number, events in self._poll.poll(wait):
                if number == listening:
                    self._accept()
                    continue
                side = self._sides.get(number)
                if side is None:
                    continue
                if events & WRITE:
                    self._send(side)
                if events & ~WRITE:
                    self._receive(side)
            self._deliver()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                try:
                    connected = socket.create_connection(self._server)
                except OSError:  # it does not listen yet: the client is refused as it would be without the proxy
                    accepted.close()
                    continue
                client, server = Side(accepted, is_client=True), Side(connected, is_client=False)
                client.other, server.other = server, client
                for side in (client, server):
                    self._sides[side.number] = side
                    self._watch(side)

    def _receive(self, side: Side) -> None:
        try:
            data = side.end.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            side.is_at_end = True
            self._watch(side)
        other = side.other
        other.waiting += len(data)
        if side.is_client:
            self._pass_on(other, data)
            return
        self._late.append((time.perf_counter() + self._seconds, other, data))
        if other.waiting > MOST_WAITING:
            side.is_paused = True
            self._watch(side)

    def _deliver(self) -> None:
        late, now = self._late, time.perf_counter() + EARLY_SECONDS
        while late and late[0][0] <= now:
            _, side, data = late.popleft()
            self._pass_on(side, data)

    def _pass_on(self, side: Side, data: bytes) -> None:
        if side.is_closed:
            return
        if not data:
            side.ends_after = True
        else:
            side.unsent.append(data)
        if not side.watched & WRITE:
            self._send(side)

    def _send(self, side: Side) -> None:
        """Send what waits, as far as it is taken; an end that has been reached is passed on after it."""
        unsent = side.unsent
        try:
            while unsent:
                data = unsent[0]
                sent = side.end.send(data)
                side.waiting -= sent
                if sent < len(data):
                    unsent[0] = data[sent:]
                    raise BlockingIOError
                unsent.popleft()
        except BlockingIOError:
            self._watch(side)
            return
        except OSError:
            self._close(side)
            return
        if side.ends_after:
            self._close(side)
            return
        self._watch(side)
        source = side.other
        if source.is_paused and side.waiting < MOST_WAITING // 2:
            source.is_paused = False
            self._watch(source)

    def _watch(self, side: Side) -> None:
        wanted = (0 if side.is_paused or side.is_at_end else READ) | (WRITE if side.unsent else 0)
        if wanted == side.watched:
            return
        if not wanted:
            self._poll.unregister(side.number)
        elif side.watched:
            self._poll.modify(side.number, wanted)
        else:
            self._poll.register(side.number, wanted)
        side.watched = wanted

    def _close(self, side: Side) -> None:
        """End both sockets of a pair."""
        for one in (side, side.other):
            if not one.is_closed:
                one.is_closed = True
                del self._sides[one.number]
                if one.watched:
                    self._poll.unregister(one.number)
                one.end.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.dumps.delaying_proxy")
    parser.add_argument("server", help="HOST:PORT")
    parser.add_argument("--milliseconds", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    host, _, port = options.server.rpartition(":")
    listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        DelayingProxy(listener, (host, int(port)), options.milliseconds / 1000).run()


if __name__ == "__main__":
    main()
