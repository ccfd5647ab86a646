"""Kill -9 of a real process while it fetches by packages, again and again, while the source changes (DST-F7)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.sync.copy.file_tree import DestinationLocked
from tests.support.copying import DONE, Ran, check, go, is_clean, tree
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import Handler, Reply, Site, Source
from tests.support.waiting import until

FILES = 120
KILLS = int(os.environ.get("HEADWATER_KILLS", "3"))
"""Kills; set the variable for a longer siege."""


def slowly(octets: bytes) -> Callable[[Handler], Reply]:
    """The octets in pieces, so that there is a middle to be killed in."""

    def script(handler: Handler) -> None:
        handler.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(octets))
        for start in range(0, len(octets), 4_000):
            handler.send(octets[start : start + 4_000])
            time.sleep(0.003)

    return lambda _handler: Reply(script=script)


def publish(dumps: Dumps, chance: random.Random) -> None:
    """Lists of now, packages of now or of before, some of them on demand alone."""
    site = dumps.site
    site.publish_list()
    site.publish_changes(0)
    if chance.random() < 0.7:
        names = list(site.files)
        if chance.random() < 0.5:  # else in the order of the list
            chance.shuffle(names)
        packages = [dumps.package(names[start : start + 25]) for start in range(0, len(names), 25)]
        if chance.random() < 0.3:
            packages.append(dumps.on_demand(map(site.uri, names[:10])))  # its manifest is last
        dumps.publish_packages(*packages)
        for number, octets in enumerate(packages):
            site.source.pages[f"/set/p{number}.zip"] = slowly(octets)
    if chance.random() < 0.5:
        for _ in range(FILES // 4):
            site.put(f"d{chance.randrange(10)}/f{chance.randrange(FILES)}", chance.randbytes(chance.randrange(3_000)))
        site.publish_list()
        site.publish_changes(0)


PROCESS = """
from headwater.sync.packages import package_content
from headwater.processes import pool
package_content.PROCESS_FROM, pool.processors = 1, lambda: 2
"""
"""A process verifies and places, however few the files and the processors are."""


def start(url: str, dest: Path, *, process: bool) -> subprocess.Popen[bytes]:
    program = f"{PROCESS if process else ''}\nfrom headwater.cli import main; main()"
    command = [sys.executable, "-c", program, "sync", url, str(dest)]
    command += ["--prefer", "dumps", "--baseline", "--max-delete", "1.0"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def is_fetching(source: Source) -> bool:
    return any(path.endswith((".zip", "/dump")) for path in source.requests())


def finished(source: Source, dest: Path) -> Ran:
    """The last run, as soon as what a killed one has started has seen that it is alone."""
    ran: list[Ran] = []

    def is_free() -> bool:
        ran.append(go(source.base, dest, prefer="dumps", baseline=True, max_delete=1.0))
        return not isinstance(ran[-1].error, DestinationLocked)

    until(is_free)
    return ran[-1]


@pytest.mark.parametrize("beside", [False, True], ids=["run", "process"])
def test_killed_again_and_again_while_packages_come(source: Source, dest: Path, beside: bool) -> None:
    """The run, which places what comes itself, or has a process beside it that does."""
    chance = random.Random(20260202)
    site = Site(source)
    dumps = Dumps(site)
    for number in range(FILES):
        site.put(f"d{number % 10}/f{number}", chance.randbytes(500 if number % 20 else 70_000))
    ever = {name: {body} for name, body in site.files.items()}
    site.publish_description()
    killed = 0
    for _ in range(KILLS):
        publish(dumps, chance)
        for name, body in site.files.items():
            ever.setdefault(name, set()).add(body)
        links = dumps.offer_demand(lambda uris: slowly(dumps.on_demand(uris))(None), resources=20)  # type: ignore[arg-type]
        offered = ["resourcedump"] if chance.random() < 0.7 and "/set/resourcedump.xml" in source.pages else []
        site.publish_capabilities("resourcelist", "changelist", *offered, links=links)
        source.forget()
        process = start(source.base, dest, process=beside)
        until(lambda running=process: running.poll() is not None or is_fetching(source), 120)  # type: ignore[misc]
        time.sleep(chance.random() * 0.3)  # whenever that is, it must do no harm
        process.send_signal(signal.SIGKILL)
        killed += process.wait(60) == -signal.SIGKILL
        for name, body in tree(dest).items():
            assert body in ever[name], name
    ran = finished(source, dest)
    assert ran.status == DONE, ran
    assert tree(dest) == site.files
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"
    assert killed
