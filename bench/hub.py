"""The hub: one payload to thousands of subscribers, and how many subscriptions it keeps."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlencode, urlsplit

import httptools

from bench.rows import Row

TOKEN = "0123456789abcdef"
TOPIC = "http://127.0.0.1:9/topic"
PAYLOAD_OCTETS = 10 << 10


def run(quick: bool) -> list[Row]:
    return [fan_out(500 if quick else 10_000), kept(2_000 if quick else 100_000)]


class _Sink(asyncio.Protocol):
    """Confirms every intent, and takes every delivery."""

    received = 0

    def connection_made(self, transport):
        self.transport, self.parser, self.url = transport, httptools.HttpRequestParser(self), b""

    def data_received(self, data):
        self.parser.feed_data(data)

    def on_url(self, url):
        self.url += url

    def on_message_complete(self):
        method, url, self.url = self.parser.get_method(), self.url, b""
        if method == b"POST":
            _Sink.received += 1
            self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return
        challenge = parse_qs(urlsplit(url.decode()).query)["hub.challenge"][0].encode()
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(challenge), challenge))


def _sink(pipe: Connection) -> None:
    import uvloop

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(_Sink, "127.0.0.1", 0, backlog=4_096)
        pipe.send(server.sockets[0].getsockname()[1])
        while True:
            await asyncio.sleep(0.002)
            if pipe.poll():
                pipe.recv()
                pipe.send((_Sink.received, time.monotonic()))

    uvloop.run(main())


def _hub(folder: str) -> tuple[subprocess.Popen[str], str]:
    command = (sys.executable, "-m", "headwater", "hub", "--listen", "127.0.0.1:0", "--state", folder, "--token", TOKEN)
    process = subprocess.Popen([*command, "--allow-private", "--quiet", "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def _resident(process: subprocess.Popen[str], what: str = "VmHWM") -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


async def _subscribe(hub: str, port: int, count: int) -> None:
    at = urlsplit(hub)

    async def some(numbers: range) -> None:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        for number in numbers:
            callback = f"http://127.0.0.1:{port}/callback/{number}"
            form = {"hub.mode": "subscribe", "hub.topic": TOPIC, "hub.callback": callback, "hub.secret": f"s{number}"}
            body = urlencode(form).encode()
            kind = b"Content-Type: application/x-www-form-urlencoded\r\n"
            writer.write(b"POST / HTTP/1.1\r\nHost: hub\r\n%sContent-Length: %d\r\n\r\n%s" % (kind, len(body), body))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 202 " in head, head
            await reader.readexactly(len(b"accepted\n"))
        writer.close()

    await asyncio.gather(*(some(range(start, count, 32)) for start in range(32)))


def _health(hub: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{hub}health") as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def _subscribed(hub: str, port: int, count: int) -> float:
    began = time.monotonic()
    asyncio.run(_subscribe(hub, port, count))
    while _health(hub)["subscriptions"] < count:
        time.sleep(0.05)
    return time.monotonic() - began


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait()


def fan_out(count: int) -> Row:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    sink = multiprocessing.get_context("spawn").Process(target=_sink, args=(theirs,), daemon=True)
    sink.start()
    port = ours.recv()
    with TemporaryDirectory() as folder:
        process, hub = _hub(folder)
        try:
            _subscribed(hub, port, count)
            took = []
            for number in range(3):
                body = (b"%d" % number).ljust(PAYLOAD_OCTETS, b"x")
                headers = {
                    "Content-Type": "application/xml",
                    "Authorization": f"Bearer {TOKEN}",
                    "Link": f'<{TOPIC}>; rel="self", <{hub}>; rel="hub"',
                }
                began = time.monotonic()
                with urllib.request.urlopen(urllib.request.Request(hub, body, headers)):
                    pass
                while True:
                    ours.send(None)
                    received, at = ours.recv()
                    if received >= count * (number + 1):
                        break
                    time.sleep(0.002)
                took.append(at - began)
            memory = _resident(process)
        finally:
            _end(process)
            sink.terminate()
    rate = count / sorted(took)[1]
    return Row(
        work=f"hub: one payload of 10 KiB to {count:,} subscribers, signed",
        ours=f"{rate:,.0f} deliveries/s, {memory >> 20} MiB",
        against="5,000/s, 150 MiB",
        ratio=rate / 5_000,
        bar=1.0,
        goal=2.0,
        met=rate >= 5_000 and memory <= 150 << 20,
    )


def kept(count: int) -> Row:
    """How long a hub with so many subscriptions takes to start, and what it holds."""
    from headwater.notify.hub.policy import HubLimits
    from headwater.notify.hub.store import HubStore

    with TemporaryDirectory() as folder:
        store = HubStore(Path(folder), HubLimits())
        with store.database.write() as tx:
            tx.run("INSERT INTO topics(id, key, url) VALUES(1, ?, ?)", (TOPIC, TOPIC))
            tx.many(
                "INSERT INTO subscriptions(topic_id, topic, callback_key, callback, host, secret, expires_at, position)"
                " VALUES(1, ?, ?, ?, 'a:80', x'00', ?, 0)",
                ((TOPIC, f"http://a/{n}", f"http://a/{n}", time.time() + 10**6) for n in range(count)),
            )
        store.close()
        began = time.monotonic()
        process, hub = _hub(folder)
        try:
            started = time.monotonic() - began
            assert _health(hub)["subscriptions"] == count
            memory = _resident(process)
        finally:
            _end(process)
    return Row(
        work=f"hub: start with {count:,} subscriptions",
        ours=f"{started:.2f} s, {memory >> 20} MiB",
        against="5 s, 300 MiB",
        ratio=5 / started,
        bar=1.0,
        met=started <= 5 and memory <= 300 << 20,
    )


if __name__ == "__main__":
    print(os.getpid(), run(quick="--quick" in sys.argv))
