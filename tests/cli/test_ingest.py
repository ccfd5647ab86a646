"""`headwater ingest` as people run it: files, pipes, a first load, the same again, and lines that are none."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.catalog.interface import StateRow, StateUpdate
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.cli import run
from tests.support.push_set import change, resource


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in values)


def ingest(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    status = run(["ingest", *arguments, "--json"])
    told = json.loads(capfd.readouterr().out)
    assert isinstance(told, dict)
    return status, told


class Place:
    """A state folder, and what lies in its catalog."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = ("--set", "s", "--state", str(folder / "state"), "--url-prefix", "http://example.org/")

    def file(self, name: str, octets: bytes) -> str:
        (self.folder / name).write_bytes(octets)
        return str(self.folder / name)

    def log(self) -> list[tuple[str, str]]:
        catalog = SqliteCatalog(self.folder / "state" / "catalog.sqlite")
        try:
            return [(one.change.value, one.uri) for one in catalog.changes("s")]
        finally:
            catalog.close()

    def uris(self) -> list[str]:
        catalog = SqliteCatalog(self.folder / "state" / "catalog.sqlite")
        try:
            return [one.uri for one in catalog.resources("s")]
        finally:
            catalog.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_first_load_then_a_feed(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    one = place.file("one", gzip.compress(lines(*({"path": f"{n}"} for n in range(2_500)))))
    two = place.file("two", lines({"path": "x"}))
    status, told = ingest(capfd, "events", one, *place.options, "--load", "--keep-loading")
    assert (status, told["taken"]) == (0, 2_500)
    status, told = ingest(capfd, "events", two, *place.options, "--load")
    assert (status, told["taken"]) == (0, 1)
    assert place.log() == []
    assert len(place.uris()) == 2_501
    status, told = ingest(capfd, "events", two, *place.options, "--load")
    assert told["error"]["code"] == "HW-CAT-02"  # type: ignore[index]
    feed = place.file("feed", lines({"path": "x", "change": "deleted"}, {"path": "y"}))
    status, told = ingest(capfd, "events", feed, *place.options)
    assert (status, told["first_seq"], told["last_seq"]) == (0, 1, 2)
    assert place.log() == [("deleted", "x"), ("created", "y")]


def test_a_run_of_one_batch_takes_away_what_is_too_old(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    one = place.file("one", lines({"path": "x"}))
    ingest(capfd, "events", one, *place.options)
    catalog = SqliteCatalog(place.folder / "state" / "catalog.sqlite")
    catalog.record("s", [], dt.datetime.now(dt.UTC), state=StateUpdate([StateRow("gone", "old", rank=1)]))
    status, told = ingest(capfd, "events", one, *place.options, "--dry-run")
    assert catalog.row_counts("s") == {"gone": 1}
    status, told = ingest(capfd, "events", one, *place.options)
    assert (status, told["ignored"]) == (0, 1)
    assert catalog.row_counts("s") == {}
    catalog.close()


def test_bad_lines_are_named_and_the_others_taken(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    name = place.file("bad", b'{"path":"a"}\nnot json\n{"path":"../b"}\n\x00\xff\n{"path":"c"}')
    assert run(["ingest", "events", name, *place.options, "--dry-run"]) == 4
    assert not (place.folder / "state").exists()
    said = capfd.readouterr()
    assert "3 would be refused" in said.out
    assert run(["ingest", "events", name, *place.options]) == 4
    said = capfd.readouterr()
    assert "2 taken" in said.out
    assert [f"line {number}" in said.err for number in (1, 2, 3, 4, 5)] == [False, True, True, True, False]
    assert "\x00" not in said.err
    assert place.uris() == ["a", "c"]


def test_fifty_lines_that_are_refused_alike_are_told_once(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    name = place.file("bad", b'{"path":"../b"}\n' * 50)
    assert run(["ingest", "events", name, *place.options]) == 4
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 2
    assert "(50 times in all: line 1, line 2, line 3 …)" in told[1]


def test_a_dry_run_leaves_no_state_where_there_was_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = tmp_path / "one"
    name.write_bytes(b'{"path":"a"}\nnot json\n')
    (tmp_path / "token").write_text("secret")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "held"\nbase_url = "http://h.example/"\n[[set]]\nname = "s"\nfeed = "events"\ntoken_file = "token"\n'
    )
    for where in (["--state", str(tmp_path / "held"), "--url-prefix", "http://h.example/"], ["--config", str(config)]):
        status, told = ingest(capfd, "events", str(name), "--set", "s", *where, "--dry-run")
        assert (status, told["rejected"]) == (4, 1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "source.toml", "token"]


def test_the_same_key_takes_the_same_lines_once(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    name = place.file("feed", lines(*({"path": f"{n}", "change": "updated"} for n in range(1_200))))
    first = ingest(capfd, "events", name, *place.options, "--key", "k")
    again = ingest(capfd, "events", name, *place.options, "--key", "k")
    assert first == again
    assert len(place.log()) == 1_200


def test_an_export_of_documents_twice(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """DIT-01, DIT-03: a load of the snapshot; the same export again is no news."""
    documents = [resource("a", 1), change("a", "created", 1), resource("b", 2, resource_set="other")]
    dump = lines(*({"_type": "change" if "change" in one else "resource", "_source": one} for one in documents))
    name = place.file("dump", dump)
    status, told = ingest(capfd, "dit", name, *place.options, "--load")
    assert (status, told["taken"], told["ignored"], told["foreign"]) == (0, 1, 1, 1)
    more = place.file("more", dump + lines(change("a", "updated", 3), resource("a", 3, "b"), change("c", "created", 4)))
    status, told = ingest(capfd, "dit", more, *place.options)
    assert status == 0
    assert place.log() == [("updated", "a"), ("created", "c")]
    status, told = ingest(capfd, "dit", more, *place.options)
    assert place.log() == [("updated", "a"), ("created", "c")]
    assert ingest(capfd, "dit", name, *place.options, "--dry-run", "--resource-set", "*")[1]["taken"] == 3


def test_a_file_of_other_sets_alone_says_their_names(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """DIT-A9: the set belongs to the identity, so nothing is taken in silence for another one."""
    file = place.file("export", lines(*(resource("a", 1, resource_set=f"Publisher {n}") for n in range(7))))
    assert run(["ingest", "dit", file, *place.options]) == 0
    told = capfd.readouterr()
    assert "7 of other sets" in told.out
    assert "HW-ING-61" in told.err
    assert "'Publisher 4'" in told.err
    assert "'Publisher 5'" not in told.err
    assert place.uris() == []
    assert run(["ingest", "dit", file, *place.options, "--resource-set", "Publisher 6"]) == 0
    assert "HW-ING-61" not in capfd.readouterr().err
    assert place.uris() == ["a"]


def test_a_pipe_is_taken_as_it_comes(place: Place) -> None:
    command = [sys.executable, "-m", "headwater", "ingest", "events", "-", *place.options, "--json"]
    environment = {**os.environ, "PYTHONDEVMODE": ""}
    done = subprocess.run(
        command, input=lines({"path": "a"}), capture_output=True, timeout=60, check=True, env=environment
    )
    assert json.loads(done.stdout)["taken"] == 1
    assert place.uris() == ["a"]


USAGE = [
    ("events", "nowhere"),
    ("dit", "nowhere"),
    ("dit", "http://127.0.0.1:1/"),
    ("dit", "http://127.0.0.1:1/UPPER"),
    ("dit", "opensearch://127.0.0.1:x/i"),
]


@pytest.mark.parametrize(("kind", "source"), USAGE)
def test_what_cannot_be_read_is_a_matter_of_usage(place: Place, kind: str, source: str) -> None:
    assert run(["ingest", kind, source, *place.options]) == 2


def test_a_configuration_says_where_and_how(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\n[[set]]\nname = "s"\nfeed = "dit"\nresource_sets = ["Their Name"]\n'
        'resource_base = "http://example.org/"\nresource_root = "root"\n[[set]]\nname = "f"\nfiles = "files"\n'
    )
    root = tmp_path / "root"
    one = resource("x", 1, resource_set="Their Name", location={"value": f"{root}/a/b", "type": "abs_path"})
    (tmp_path / "dump").write_bytes(lines(one))
    options = ("--set", "s", "--config", str(config))
    assert ingest(capfd, "dit", str(tmp_path / "dump"), *options)[1]["taken"] == 1
    assert Place(tmp_path).uris() == ["a/b"]
    assert run(["ingest", "dit", str(tmp_path / "dump"), "--set", "f", "--config", str(config)]) == 2
    assert run(["ingest", "dit", str(tmp_path / "dump"), "--set", "s"]) == 2
