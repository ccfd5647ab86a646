"""However many connections strangers open, and whatever they do with them, whoever comes next is answered."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.http.server import BoundedProtocol, OpenConnections, ServerLimits, Stage, room_for_connections
from headwater.notify.hub.policy import ClientShares
from headwater.transport.access import client_network
from tests.support.serving import Face, Process, drain, face, request
from tests.support.waiting import DEADLINE, until


class Held:
    """A connection at a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.is_over = False

    def give_way(self) -> None:
        self.is_over = True


def table(most: int, of_client: int, *held: tuple[str, Stage]) -> tuple[OpenConnections, list[Held]]:
    opened, made = OpenConnections(most, of_client), []
    for address, stage in held:
        made.append(Held(stage))
        assert opened.admit(made[-1], address)
    return opened, made


R, B, A = Stage.REQUEST, Stage.BODY, Stage.ANSWER


@pytest.mark.parametrize(
    ("held", "comes", "gives_way"),
    [
        pytest.param([("a", R), ("b", R)], "a", None, id="room"),
        pytest.param([("a", R), ("a", R), ("b", R), ("a", R)], "b", 0, id="full: of who has most the oldest"),
        pytest.param([("a", A), ("a", B), ("a", R), ("b", R)], "b", 2, id="full: what waits for a request first"),
        pytest.param([("a", A), ("a", B), ("a", A), ("b", R)], "b", 1, id="full: a body that comes slowly"),
        pytest.param([("a", A), ("a", A), ("a", A), ("b", R)], "c", 3, id="full: what is answered never"),
        pytest.param([("b", R), ("a", R), ("a", R), ("a", R)], "a", 1, id="a share that is used up: of the same"),
        pytest.param([("b", R), ("a", A), ("a", A), ("a", A)], "a", "refused", id="a share that is being answered"),
        pytest.param([("a", A), ("a", A), ("b", A), ("b", A)], "c", "refused", id="all being answered"),
    ],
)
def test_who_gives_way(held: list[tuple[str, Stage]], comes: str, gives_way: int | str | None) -> None:
    opened, made = table(4, 3, *held)
    assert opened.admit(Held(R), comes) is (gives_way != "refused")
    assert [number for number, one in enumerate(made) if one.is_over] == [
        number for number in range(4) if number == gives_way
    ]
    assert len(opened) <= 4


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Stage), st.booleans()), max_size=60))
def test_there_are_never_more_than_there_may_be(steps: list[tuple[str, Stage, bool]]) -> None:
    opened, alive = OpenConnections(6, 4), list[tuple[str, Held]]()
    for address, stage, leaves in steps:
        if leaves and alive:
            gone = alive.pop()
            opened.leave(gone[1])
        one = Held(stage)
        has_slow_one = any(held.stage is not A for _, held in alive)
        was_let_in = opened.admit(one, address)
        assert was_let_in or not has_slow_one or sum(of == address for of, _ in alive) == 4
        alive = [(of, held) for of, held in alive if not held.is_over] + [(address, one)] * was_let_in
        assert len(opened) == len(alive) <= 6
        assert all(sum(of == client for of, _ in alive) <= 4 for client in "abc")
        opened.leave(Held(R))


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_one_client_is_an_address_or_a_network_of_ipv6(address: str, client: str) -> None:
    assert client_network(address) == client


def test_what_clients_share_has_room_for_others() -> None:
    shares = ClientShares(10, 6)
    assert [shares.take("a", 4), shares.take("a", 4), shares.take("b", 6), shares.take("c", 1)] == [
        True,
        False,
        True,
        False,
    ]
    shares.give_back("a", 4)
    assert (shares.taken, shares.take("c", 4)) == (6, True)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Face]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(b"one")
    limits = ServerLimits(connections=40, client_connections=30, head_seconds=600, idle_seconds=600)
    with face(tmp_path / "files", tmp_path / "state", limits=limits) as running:
        yield running


GET = b"GET /files/resources/a HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"", GET, GET + b"\r\n", b"POST /files/changes HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n"],
    ids=["nothing", "half a head", "an answer and then nothing", "half a request"],
)
def test_slow_strangers_shut_nobody_out(served: Face, begin: bytes) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(served.connect()) for _ in range(100)]
        for one in slow:
            with contextlib.suppress(OSError):
                one.sendall(begin)
        until(lambda: drain_closed(slow) >= 70, what="connections that gave way")
        for _ in range(5):
            assert served.get("/files/resources/a").body == b"one"


def drain_closed(connections: list[socket.socket]) -> int:
    """How many of them were ended by the server."""
    closed = 0
    for one in connections:
        one.settimeout(0.001)
        try:
            while one.recv(1 << 16):
                pass
            closed += 1
        except TimeoutError:
            pass
        except OSError:
            closed += 1
    return closed


def test_who_gets_no_place_is_told(tmp_path: Path) -> None:
    root = tmp_path / "files"
    root.mkdir()
    (root / "big").write_bytes(bytes(30_000_000))
    with face(
        root, tmp_path / "state", limits=ServerLimits(connections=2, client_connections=2, idle_seconds=1)
    ) as served:
        with served.connect() as first, served.connect() as second:
            for one in (first, second):
                one.sendall(b"GET /files/resources/big HTTP/1.1\r\nhost: x\r\n\r\n")
                assert one.recv(10)
            assert served.raw(b"").startswith(b"HTTP/1.1 503 ")
            first.close()
        until(lambda: served.get("/health").status == 200)


_ROOM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from headwater.http.server import room_for_connections
print(room_for_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def test_as_many_files_as_there_may_be() -> None:
    def room(soft: int, hard: int) -> list[int]:
        command = [sys.executable, "-c", _ROOM, str(soft), str(hard)]
        return [int(word) for word in subprocess.run(command, capture_output=True, check=True).stdout.split()]

    assert room(256, 1_024) == [512, 1_024]
    assert room_for_connections() <= max(resource.getrlimit(resource.RLIMIT_NOFILE))


@pytest.mark.parametrize("before", [0, 1], ids=["the first request", "one more"])
def test_a_request_that_comes_as_the_server_ends_is_answered(before: int, tmp_path: Path) -> None:
    """It may have come before, and be unread: closed then, the connection would be reset."""
    asked = b"GET /.well-known/resourcesync HTTP/1.1\r\nHost: a\r\n\r\n"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"a")
    limits = ServerLimits(last_request_seconds=60)
    with face(tmp_path / "files", tmp_path / "state", limits=limits) as served, served.connect() as client:
        for _ in range(before):
            client.sendall(asked)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        until(lambda: len(served.server.server_state.connections) == 1)
        (connection,) = served.server.server_state.connections
        served.server.end()
        assert isinstance(connection, BoundedProtocol)
        until(lambda: connection.is_last)
        client.sendall(asked)
        assert drain(client).startswith(b"HTTP/1.1 200")


def test_a_server_that_ends_waits_a_moment_for_connections_without_requests(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    with face(tmp_path / "files", tmp_path / "state") as served, served.connect() as client:
        until(lambda: len(served.server.server_state.connections) == 1)
        served.server.end()
        assert drain(client) == b""


def test_an_answer_that_is_under_way_is_finished(tmp_path: Path) -> None:
    """More than the sockets hold, and who reads it begins when the server has been told to end."""
    octets = bytes(range(256)) * (24 << 12)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large").write_bytes(octets)
    with face(tmp_path / "files", tmp_path / "state") as served, served.connect() as client:
        client.sendall(b"GET /files/resources/large HTTP/1.1\r\nHost: a\r\n\r\n")
        begun = client.recv(1 << 10)
        assert begun.startswith(b"HTTP/1.1 200")
        served.server.end()
        head, _, body = (begun + drain(client)).partition(b"\r\n\r\n")
        assert f"content-length: {len(octets)}".encode() in head.lower()
        assert body == octets


@pytest.mark.long(20)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_readers_that_take_nothing_have_little_memory_each(tmp_path: Path) -> None:
    """Beyond some, each has a small block: 900 took 250 MiB when all had a large one."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large").write_bytes(bytes(8 << 20))
    with Process("--files", str(tmp_path / "files"), "--port", "0", "--state", str(tmp_path / "s"), "--quiet") as one:
        url, count = urlsplit(one.ready()), 900
        request(url.geturl(), "/files/resources/large", "HEAD")
        before = _resident_kib(one.process.pid)
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
                client.connect((url.hostname, url.port))
                client.sendall(b"GET /files/resources/large HTTP/1.1\r\nHost: a\r\n\r\n")
                client.settimeout(DEADLINE)
                assert client.recv(12) == b"HTTP/1.1 200"
            time.sleep(0.5)
            assert _resident_kib(one.process.pid) - before < 170 << 10


def _resident_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith("VmRSS:"))


def test_a_server_that_can_open_no_more_files_ends_as_others_do(tmp_path: Path) -> None:
    """Who waits to be accepted is not answered then; that ends nothing before its time."""
    (tmp_path / "files").mkdir()
    with face(tmp_path / "files", tmp_path / "state") as served, served.connect() as client:
        until(lambda: len(served.server.server_state.connections) == 1)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            served.server.should_exit = True
            assert drain(client) == b""
            until(lambda: not served.server._loop.is_running())  # type: ignore[union-attr]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
