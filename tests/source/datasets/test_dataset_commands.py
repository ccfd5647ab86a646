"""`headwater rdf replay`, `rdf restart`, `status` and `serve --dataset`: what people do with a published dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.serve_options import configured
from headwater.datasets.dataset_folder import BrokenSeries
from headwater.errors import UsageFault
from headwater.rdf import BadRdf
from headwater.source.health import records
from tests.source.datasets.dataset_source import BASE, Rounds, dataset_server, file_set, triples
from tests.source.datasets.importer import ImportedDataset, apply, entries
from tests.source.datasets.test_published_datasets import put
from tests.support.program import run_here
from tests.support.waiting import until


@pytest.fixture
def rounds(tmp_path: Path) -> Rounds:
    """A dataset with two changes."""
    path = put(tmp_path / "d.nt", triples(1))
    made = Rounds(tmp_path, file_set(path))
    made.run()
    put(path, triples(1, 2))
    made.run()
    return made


def told(*arguments: object) -> tuple[int, Any]:
    done = run_here(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def patches(rounds: Rounds) -> list[Path]:
    return sorted((rounds.state / "datasets" / "d").glob("*.nqud"))


def test_tim_08_the_replay_of_all_patches(rounds: Rounds) -> None:
    """0 where it gives the dataset; 1 for a patch that is lost, damaged, or another one; 2 for no dataset."""
    assert told("rdf", "replay", rounds.state, "d")[0] == 0
    assert b"2 patches, 2 statements: in agreement" in run_here("rdf", "replay", rounds.state, "d").stdout
    assert run_here("rdf", "replay", rounds.state, "other").returncode == 2
    first = patches(rounds)[0]
    held = first.read_bytes()
    for octets in (b"", held + b"# a note\n", held.replace(b"v1", b"v7")):
        first.write_bytes(octets)
        status, report = told("rdf", "replay", rounds.state, "d")
        assert (status, "not as it was made" in report["problem"]) == (1, True)
    first.unlink()
    assert run_here("rdf", "replay", rounds.state, "d").returncode == 1


@pytest.mark.parametrize("lost", [(), ("patch",), ("patch", "dataset")], ids=["whole", "a patch lost", "both lost"])
def test_history_begins_anew_where_that_is_asked_for(rounds: Rounds, lost: tuple[str, ...]) -> None:
    """One patch of everything takes the place of all before; the Change List begins with it, no index (TIM-04)."""
    if "patch" in lost:
        patches(rounds)[0].unlink()
    if "dataset" in lost:
        next((rounds.state / "datasets" / "d").glob("*.nq")).unlink()
    if lost:
        put(rounds.folder / "d.nt", triples(1, 2, 3))
        with pytest.raises(BrokenSeries):
            rounds.run()
    else:
        assert run_here("rdf", "restart", rounds.state, "d", "--dry-run").returncode == 0
        rounds.run()
        assert len(patches(rounds)) == 2
    assert run_here("rdf", "restart", rounds.state, "d").returncode == 0
    rounds.run()
    newest = entries(rounds.document("d/changelist.xml"))
    assert newest[0].md["change"] == "created"
    imported = ImportedDataset()
    for one in newest:
        apply(rounds.fetch(one.link["href"]), imported.lines)
    assert b"".join(sorted(imported.lines)) == rounds.document("d/dataset.nq")
    assert len(imported.lines) == (3 if lost else 2)
    assert {one.name for one in (rounds.state / "datasets" / "d").iterdir()} == {
        *(one.link["href"].rpartition("/")[2] for one in newest),
        next((rounds.state / "datasets" / "d").glob("*.nq")).name,
    }
    put(rounds.folder / "d.nt", triples(9))
    rounds.run()
    for name in ("d/changelist.xml", "d/changelist/open.xml"):
        assert b"<urlset" in rounds.document(name)
        assert len(entries(rounds.document(name))) == len(newest) + 1
    assert told("rdf", "replay", rounds.state, "d")[0] == 0


def test_the_status_tells_of_datasets(rounds: Rounds) -> None:
    _status, report = told("status", rounds.state)
    (found,) = report["datasets"]
    assert (found["set"], found["statements"], found["patches"], found["first"], found["fault"]) == ("d", 2, 2, 1, None)
    assert b"d: 2 statements" in run_here("status", rounds.state).stdout


def test_the_status_tells_what_keeps_a_dataset_from_being_published(rounds: Rounds) -> None:
    path = put(rounds.folder / "d.nt", b"no RDF\n")
    with pytest.raises(BadRdf):
        rounds.run()
    status, report = told("status", rounds.state)
    assert (status, str(path) in report["datasets"][0]["fault"]) == (4, True)
    put(path, triples(1, 2))
    rounds.run()
    status, report = told("status", rounds.state)
    assert (status, report["datasets"][0]["fault"]) == (0, None)


def test_a_first_publication_that_fails_has_one_word(tmp_path: Path) -> None:
    """The phase is the same in `/health` and in `status`, also when it goes well again."""
    path = put(tmp_path / "d.nt", "no RDF")
    with dataset_server(tmp_path / "state", [file_set(path, dataset_seconds=0.05)]) as running:

        def phases() -> list[str]:
            (found,) = records(running.health()["sets"])
            _status, report = told("status", tmp_path / "state")
            return [str(found["phase"]), *(one["phase"] for one in report.get("sets", ()))]

        until(lambda: phases() == ["failing", "failing"])
        put(path, triples(1))
        until(lambda: phases() == ["following", "open"])


def test_static_files_of_a_dataset(tmp_path: Path) -> None:
    """TIM-08 holds of the files that any web server sends."""
    path, out = put(tmp_path / "d.nt", triples(1)), tmp_path / "out"
    command = ("publish", "--dataset", path, "--to", out, "--base-url", BASE, "--set", "d")
    for numbers in ((1,), (1, 2), (2,)):
        put(path, triples(*numbers))
        assert run_here(*command).returncode == 0
    imported = ImportedDataset()
    for one in entries((out / "d" / "changelist.xml").read_bytes()):
        apply((out / one.link["href"].removeprefix(f"{BASE}/")).read_bytes(), imported.lines)
    assert b"".join(sorted(imported.lines)) == (out / "d" / "dataset.nq").read_bytes() == triples(2).encode()
    assert run_here(*command, "--files", tmp_path).returncode == 2


def test_one_command_publishes_a_dataset(tmp_path: Path) -> None:
    path = put(tmp_path / "people.ttl", "")
    config = configured({"dataset": path, "set_name": "people", "base_url": BASE, "state": tmp_path / "state"})
    (one,) = config.sets
    assert (one.profile, one.dataset, one.name) == ("rdf-dataset", str(path), "people")
    assert config.site().settings("people").describedby == f"{BASE}/people/description.ttl"
    with pytest.raises(UsageFault, match="exclude each other"):
        configured({"dataset": path, "files": tmp_path})


MISTAKES = {
    "a folder without RDF": ("folder", b"", "HW-DAT-04", ".ttl, .trig"),
    "a table": ("a.csv", b"a,b\n", "HW-DAT-03", "suffix of RDF"),
    "a relative IRI": ("a.ttl", b"<#me> a <http://e.org/C> .\n", "HW-RDF-01", "a relative IRI, and no base: give one"),
    "another in N-Quads": ("a.nq", b"<a:b> <a:c> <d> .\n", "HW-RDF-01", "absolute ones alone"),
    "an open literal": (
        "a.nq",
        b'<a:b> <a:c> "1" .\n<a:b> <a:c> "2 .\n<a:b> <a:c> "3" .\n',
        "HW-RDF-01",
        "line 2: the literal is not closed",
    ),
    "a graph in N-Triples": (
        "a.nt",
        b'<a:b> <a:c> "1" <a:g> .\n',
        "HW-RDF-01",
        "line 1: a graph name",
    ),
    "a far line": ("a.nq", b'<a:b> <a:c> "1" .\n' * 7000 + b"<a:b>\n", "HW-RDF-01", "line 7001: "),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_what_is_no_dataset_is_told_with_what_to_do(case: str, tmp_path: Path) -> None:
    name, octets, code, told_of = MISTAKES[case]
    path = tmp_path / name
    if octets:
        path.write_bytes(octets)
    else:
        path.mkdir()
        (path / "readme.txt").write_text("no RDF")
    options = ["--to", tmp_path / "out", "--base-url", BASE, "--state", tmp_path / "state"]
    done = run_here("publish", "--dataset", path, *options)
    assert done.returncode == 3
    assert code in done.stderr.decode()
    assert told_of in done.stderr.decode()


def test_a_configuration_that_forgets_the_profile(tmp_path: Path) -> None:
    config = tmp_path / "source.toml"
    config.write_text(f'state = "state"\nbase_url = "{BASE}"\n[[set]]\nname = "d"\ndataset = "d.nt"\n')
    done = run_here("publish", config)
    assert done.returncode == 2
    assert 'profile = "rdf-dataset"' in done.stderr.decode()
