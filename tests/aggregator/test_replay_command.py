"""`headwater replay`: what a sink is told again, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore
from headwater.aggregator.store import DeadLetter
from headwater.sync.run import sync
from tests.aggregator.store_contract import T0, event, leased
from tests.support.fake_source import Site, Source
from tests.support.program import run_here

CONFIG = """
state = "agg"
[[source]]
name = "museum"
url = "http://127.0.0.1:9/"
[[sink]]
name = "index"
kind = "command"
command = "true"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "aggregate.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def store(config: Path) -> Iterator[SqliteStore]:
    """A store with three events, which the sink has."""
    with SqliteStore(config.parent / "agg" / HOME / FILE) as store:
        store.enrol([("museum", "http://127.0.0.1:9/")], T0)
        store.enrol_sinks(["index"], T0)
        store.append(leased(store), [event(name) for name in "abc"], T0)
        letter = DeadLetter(sink="index", number=2, at=T0, reason="bad", tries=3)
        store.acknowledge("index", 3, [letter])
        yield store


def test_a_sink_begins_again_after_a_number(config: Path, store: SqliteStore) -> None:
    done = run_here("replay", config, "index", "--after", 1)
    assert (done.returncode, done.stdout) == (0, b"index will be told 2 events; 2 wait after number 1\n")
    assert store.sink("index").acknowledged == 1
    done = run_here("replay", config, "index", "--after", 0, "--json")
    assert json.loads(done.stdout) == {"sink": "index", "events": 3, "acknowledged": 0, "waiting": 3}


def test_dead_letters_are_told_again(config: Path, store: SqliteStore) -> None:
    done = run_here("replay", config, "index", "--dead")
    assert (done.returncode, done.stdout) == (0, b"index will be told 1 event; 1 waits after number 3\n")
    assert [(one.number, one.path) for one in store.events(3, sink="index")] == [(4, "b")]
    assert store.dead_letters("index") == []


def test_all_that_is_held_is_told(config: Path, store: SqliteStore) -> None:
    with Source() as source:
        site = Site(source)
        site.put("x.xml", b"<x/>")
        site.publish()
        sync(source.base, config.parent / "agg" / "museum")
    assert run_here("replay", config, "index", "--all").returncode == 0
    assert [(one.number, one.action, one.path) for one in store.events(3, sink="index")] == [(4, "created", "x.xml")]
    assert store.events(3) == []


@pytest.mark.parametrize("ways", [(), ("--all", "--dead"), ("--after", "0", "--all")])
def test_one_way_is_needed(config: Path, store: SqliteStore, ways: tuple[str, ...]) -> None:
    done = run_here("replay", config, "index", *ways)
    assert done.returncode == 2
    assert b"one of --after, --all, --dead is needed" in done.stderr


def test_what_is_not_there_is_told(config: Path) -> None:
    done = run_here("replay", config, "index", "--after", "0")
    assert (done.returncode, b"HW-AGG-03" in done.stderr) == (6, True)
    assert not (config.parent / "agg").exists()


def test_a_sink_that_is_not_there_is_told(config: Path, store: SqliteStore) -> None:
    for way in (("--after", "0"), ("--all",), ("--dead",)):
        done = run_here("replay", config, "indx", *way)
        assert (done.returncode, b"HW-AGG-02" in done.stderr) == (2, True)
