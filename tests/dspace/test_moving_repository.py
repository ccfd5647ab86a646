"""Everything moves at once, for several rounds: after each the copy is what an anonymous reader can see."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dspace.fake_dspace import Bitstream, FakeDSpace, fake_dspace
from tests.dspace.harvested_set import BASE, HarvestedSet
from tests.support.copying import go, tree
from tests.support.examples import MANY
from tests.support.program import run_here
from tests.support.scripted_server import Request, answer
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(60)
ROUNDS = 12 if MANY else 4


@pytest.fixture
def dspace() -> Iterator[FakeDSpace]:
    with fake_dspace() as server:
        yield server
        assert server.busiest <= 1


class Curators:
    """People who change a repository: one change for every few requests, of any kind."""

    def __init__(self, dspace: FakeDSpace, seed: int) -> None:
        self.dspace = dspace
        self.chance = random.Random(seed)
        self.is_busy = False
        self.done = 0
        self.collections = [dspace.collection() for _ in range(4)]
        for _ in range(160):
            self.add()

    def add(self) -> None:
        files = [Bitstream(self.chance.randbytes(self.chance.randrange(300))) for _ in range(self.chance.randrange(3))]
        self.dspace.add(self.chance.choice(self.collections), *files)

    def change(self, _request: Request | None = None) -> None:
        chance, dspace = self.chance, self.dspace
        if not self.is_busy or chance.random() > 0.2:
            return
        self.done += 1
        item = chance.choice(list(dspace.items.values()))
        files = item.bundles["ORIGINAL"]
        file = chance.choice(files) if files else None
        match chance.randrange(12):
            case 0 | 1:
                self.add()
            case 2:
                dspace.delete(item)
            case 3:
                item.is_withdrawn = not item.is_withdrawn
            case 4:
                item.is_private = not item.is_private
            case 5:
                item.is_restricted = not item.is_restricted
            case 6 if file:
                file.is_restricted = not file.is_restricted
            case 7 if file:
                file.content = chance.randbytes(100)  # the item does not tell
            case 8 if file:
                files.remove(file)
                other = chance.choice(list(dspace.items.values()))
                other.bundles["ORIGINAL"].append(file)
            case 9 if file:
                file.name = f"{chance.randrange(1000)} é.pdf"
            case 10:
                item.collection = chance.choice(self.collections)
            case _:
                dspace.edit(item, f"Title {chance.randrange(1000)}")

    def refuse(self, _request: Request) -> bytes | None:
        if self.is_busy and self.chance.random() < 0.005:
            return answer(b"", self.chance.choice(["503 Busy", "429 Slowly"]), Retry_After="0")
        return None


@pytest.mark.parametrize("seed", [1, 2] if not MANY else range(10))
def test_after_each_round_the_copy_is_what_anybody_can_see(seed: int, dspace: FakeDSpace, tmp_path: Path) -> None:
    curators = Curators(dspace, seed)
    dspace.before, dspace.instead = curators.change, curators.refuse
    harvested = HarvestedSet(tmp_path, dspace, "max_delete = 1.0")
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    for number in range(ROUNDS):
        curators.is_busy = True
        assert harvested.run(*["--audit"] * (number % 2))[0] in (0, 4), harvested.said
        curators.is_busy = False
        assert harvested.run("--audit")[0] == 0, harvested.said
        assert harvested.holds() == dspace.truth(), f"seed {seed}, round {number}, after {curators.done} changes"
    assert curators.done > 20 * ROUNDS
    assert harvested.run("--audit")[1]["changed"] == 0


@pytest.mark.parametrize("seed", [3] if not MANY else range(20, 30))
def test_runs_that_are_killed_lose_no_record_and_little_work(seed: int, dspace: FakeDSpace, tmp_path: Path) -> None:
    """Killed with -9 by request numbers, while everything moves: each run goes on where the last one was."""
    curators = Curators(dspace, seed)
    harvested = HarvestedSet(tmp_path, dspace, "max_delete = 1.0")
    running: list[subprocess.Popen[bytes]] = []
    limit = 0

    def before(got: Request) -> None:
        curators.change(got)
        if running and len(dspace.received) >= limit:
            running[0].kill()
            running[0].wait()

    dspace.before = before
    kills = 0
    for audit in ([], ["--audit"]):
        curators.is_busy = bool(audit)
        while True:
            limit = len(dspace.received) + curators.chance.randrange(40, 160)
            running[:] = [harvested.start(*audit)]
            _, said = running[0].communicate(timeout=120)
            if running[0].returncode in (0, 4):
                break
            assert running[0].returncode == -signal.SIGKILL, said
            kills += 1
        running.clear()
    assert kills >= 4
    curators.is_busy = False
    assert harvested.run("--audit")[0] == 0
    assert harvested.holds() == dspace.truth()


def test_a_first_harvest_that_is_killed_repeats_no_more_than_a_page(dspace: FakeDSpace, tmp_path: Path) -> None:
    """Every kill costs a page of the list and the items since the last record, at most 50."""
    collection = dspace.collection()
    for number in range(300):
        dspace.add(collection, Bitstream(b"%d" % number))
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    HarvestedSet(tmp_path / "whole", dspace).run()
    once = len(dspace.received)
    dspace.received.clear()
    harvested = HarvestedSet(tmp_path / "killed", dspace)
    running: list[subprocess.Popen[bytes]] = []
    kills, limit = 0, 170

    def before(_request: Request) -> None:
        if running and len(dspace.received) >= limit:
            running[0].kill()
            running[0].wait()

    dspace.before = before
    while True:
        running[:] = [harvested.start()]
        running[0].communicate(timeout=120)
        if running[0].returncode == 0:
            break
        kills, limit = kills + 1, limit + 170
    assert kills >= 3
    assert len(dspace.received) <= once + kills * 120
    assert harvested.holds() == dspace.truth()


def test_a_large_file_that_a_kill_has_cut_is_continued(dspace: FakeDSpace, tmp_path: Path) -> None:
    large = Bitstream(bytes(range(256)) * 60_000, name="large.bin")
    dspace.add(dspace.collection(), large)
    harvested = HarvestedSet(tmp_path, dspace)
    ranges: list[str] = []
    right = dspace.respond

    def respond(request: Request, connection: socket.socket) -> bytes | None:
        made = right(request, connection)
        if not request.target.endswith("/content") or made is None:
            return made
        ranges.append(str(request.headers.get("range", "")))
        if len(ranges) > 1:
            return made
        connection.sendall(made[: len(made) // 2])
        until(lambda: any(one.stat().st_size > 5 << 20 for one in harvested.files.glob(".headwater/*-*")))
        running.kill()
        return None

    dspace.respond = respond  # type: ignore[method-assign]
    running = harvested.start()
    running.communicate(timeout=120)
    assert running.returncode == -signal.SIGKILL
    assert harvested.run()[0] == 0
    assert harvested.holds() == dspace.truth()
    start = int(ranges[1].removeprefix("bytes=").rstrip("-"))
    assert start > 5 << 20


def test_a_server_follows_the_repository_and_copies_follow_the_server(dspace: FakeDSpace, tmp_path: Path) -> None:
    curators = Curators(dspace, 5)
    more = "max_delete = 1.0\npoll_seconds = 0.2\ncompare_seconds = 1.0"
    harvested = HarvestedSet(tmp_path, dspace, more, "port = 0")
    dspace.before = curators.change
    copy = tmp_path / "copy"
    with Process(str(harvested.config)) as server:
        url = server.listening()
        until(
            lambda: request(url, "/health").status == 200 and b"/d/" in request(url, "/.well-known/resourcesync").body
        )

        def is_true() -> bool:
            """A copy asks for consent, too, where many of its files vanish at once."""
            return go(url, copy, max_delete=1.0).status == 0 and told(copy) == dspace.truth()

        for changes in (100, 200):
            curators.is_busy = True
            until(lambda changes=changes: curators.done >= changes, what="so many changes")  # type: ignore[misc]
            curators.is_busy = False
            until(is_true, 180.0, "the truth", pause=0.5)
        assert server.stop()[0] == 0
    assert harvested.holds() == dspace.truth()


def told(copy: Path) -> dict[str, object]:
    """A copy as `FakeDSpace.truth` tells it."""
    found: dict[str, object] = {}
    for path, octets in tree(copy).items():
        if "/items/" in f"/{path}":
            item = json.loads(octets)
            item.pop("type")
            found[item["uuid"]] = item
        elif "bitstreams/" in path:
            found[path.split("bitstreams/")[1].split("/")[0]] = octets
    return found


def test_a_static_tree_is_harvested_and_published_by_one_command(dspace: FakeDSpace, tmp_path: Path) -> None:
    """What is hidden in the repository is gone from the tree; what cannot be read is told by the exit status."""
    collection = dspace.collection()
    items = [dspace.add(collection, Bitstream(b"%d" % number)) for number in range(20)]
    more = "compare_seconds = 0.001"
    harvested = HarvestedSet(tmp_path, dspace, more, f'{BASE}\nto = "tree"')
    assert run_here("publish", harvested.config).returncode == 0
    place = tmp_path / "tree" / "d" / "resources"
    assert told(place) == dspace.truth()
    items[0].is_withdrawn = True
    items[1].bundles["ORIGINAL"][0].is_restricted = True
    assert run_here("publish", harvested.config).returncode == 0
    assert told(place) == dspace.truth()
    file = items[2].bundles["ORIGINAL"][0]
    file.content, file.sent = b"new", b"other"
    assert run_here("publish", harvested.config).returncode == 4
    assert told(place)[file.uuid] == b"2"
