"""Kill -9 of a real process that copies a source of dumps alone, while the source changes (DST-F7)."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.support.copying import DONE, check, is_clean, tree
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import Site, Source, at
from tests.support.waiting import until
from tests.sync.packages.test_package_kill import finished, is_fetching, slowly, start

KILLS = int(os.environ.get("HEADWATER_KILLS", "2"))
"""Kills; set the variable for a longer siege."""


def publish(dumps: Dumps, chance: random.Random) -> None:
    """Dumps of now: packages with and without a copy of their manifest, some with the manifest last."""
    site = dumps.site
    names = list(site.files)
    chance.shuffle(names)
    listed = []
    for number, start_at in enumerate(range(0, len(names), 25)):
        some = names[start_at : start_at + 25]
        octets = dumps.package(some) if chance.random() < 0.7 else dumps.on_demand(map(site.uri, some))
        name = f"p{int(site.clock)}-{number}"
        dumps.serve_package(f"{name}.zip", octets)
        links = dumps.serve_contents(f"{name}.xml", octets) if chance.random() < 0.5 else ""
        listed.append(dumps.entry(f"{name}.zip", octets, links=links))
        site.source.pages[f"/set/{name}.zip"] = slowly(octets)
    dumps.publish_dump(listed)
    dumps.publish_change_packages(0, *(site.clock - back for back in (60, 30, 0)))
    site.publish_capabilities("resourcedump", "changedump")


@pytest.mark.parametrize("beside", [False, True], ids=["run", "process"])
def test_killed_again_and_again_while_dumps_are_read(source: Source, dest: Path, beside: bool) -> None:
    """The run, which places what comes itself, or has a process beside it that does."""
    chance = random.Random(20260203)
    site = Site(source)
    dumps = Dumps(site)
    for number in range(100):
        site.put(f"d{number % 10}/f{number}", chance.randbytes(500 if number % 20 else 70_000))
    site.clock += 1
    ever = {name: {body} for name, body in site.files.items()}
    site.publish_description()
    killed = 0
    for _ in range(KILLS):
        publish(dumps, chance)
        source.forget()
        process = start(source.base, dest, process=beside)
        until(lambda running=process: running.poll() is not None or is_fetching(source), 120)  # type: ignore[misc]
        time.sleep(chance.random() * 0.4)  # whenever that is, it must do no harm
        process.send_signal(signal.SIGKILL)
        killed += process.wait(60) == -signal.SIGKILL
        for name, body in tree(dest).items():
            assert body in ever[name], name
        for _ in range(20):
            name = f"d{chance.randrange(10)}/f{chance.randrange(120)}"
            site.put(name, chance.randbytes(chance.randrange(3_000)))
            ever.setdefault(name, set()).add(site.files[name])
        site.drop(chance.choice(list(site.files)))
        site.clock += 1
    publish(dumps, chance)
    ran = finished(source, dest)
    assert ran.status == DONE, ran
    assert ran.one.position == at(site.clock)
    assert tree(dest) == site.files
    assert is_clean(dest)
    assert check(source.base, dest).verdict == "in sync"
    assert killed
