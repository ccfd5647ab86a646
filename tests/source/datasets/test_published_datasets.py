"""RDF datasets as they are published: documents that the existing importer reads, patches that lead to the dataset."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyoxigraph as ox
import pytest
import rdflib
import rdflib.compare

from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder, InputChanged
from headwater.datasets.rows import DatasetState, patches_from, read_dataset
from headwater.errors import SourceFault, UsageFault
from headwater.ingest import dataset_inputs as inputs
from headwater.publish import dataset_documents
from headwater.publish.notifications import change_payload
from headwater.rdf import BadRdf, BlankNodesRefused, canonical
from headwater.rdf.syntaxes import SYNTAXES, RdfInput
from headwater.source import published_dataset as intake
from headwater.source.config import BadDatasetConfig, SetConfig
from headwater.source.set_folders import FolderOverlap
from headwater.source.source import Source
from headwater.triplestores.embedded_store import EmbeddedStore
from headwater.triplestores.sparql_updates import POSITION_GRAPH, StorePosition
from tests.source.datasets.dataset_source import BASE, Rounds, file_set, triples
from tests.source.datasets.importer import ImportedDataset, apply, entries, import_changes, root_of
from tests.support.failing import failing
from tests.support.program import run_here


def put(path: Path, text: str | bytes) -> Path:
    """Replace a file as a whole."""
    aside = path.with_name(path.name + ".new")
    aside.write_bytes(text.encode() if isinstance(text, str) else text)
    aside.replace(path)
    return path


def state_of(rounds: Rounds, name: str = "d") -> DatasetState:
    with Source(rounds.config) as source:
        state = read_dataset(source.catalog, name)
    assert state is not None
    return state


def test_tim_a1_every_change_leads_to_a_patch_of_the_dataset_file(tmp_path: Path) -> None:
    """TIM-07, TIM-A1 to TIM-A4, TIM-A15: what the importer reads, and replayed it is the dataset at every step."""
    path = put(tmp_path / "d.nt", triples(1, 2))
    rounds = Rounds(tmp_path, file_set(path))
    imported = ImportedDataset()
    for step, text in enumerate([triples(1, 2), triples(2, 3), triples(*range(10)), triples(9, value="x")], 1):
        put(path, text)
        rounds.run()
        rounds.imported(into=imported)  # only what is new
        assert rounds.imported().lines == imported.lines == {one.encode() for one in text.splitlines(keepends=True)}
        changes = entries(rounds.document("d/changelist.xml"))
        assert [one.md["change"] for one in changes] == ["created", *["updated"] * (step - 1)]
        assert {one.loc for one in changes} == {f"{BASE}/d/dataset.nq"}
        assert {one.md["type"] for one in changes} == {"application/n-quads"}
        head, _links = root_of(rounds.document("d/changelist.xml"))
        assert head["from"] == changes[0].md["datetime"]
        assert "until" not in head
        listed, _links = root_of(rounds.document("d/resourcelist.xml"))
        assert head["from"] <= changes[-1].md["datetime"] <= listed["at"]
    assert imported.taken == 4


def test_tim_03_each_dataset_has_a_capability_list_and_tim_10_a_description(tmp_path: Path) -> None:
    """TIM-04: with both lists; `describedby` on the Capability List's root, and on the Source Description's entry."""
    sets = [file_set(put(tmp_path / f"{name}.nt", triples(1)), name) for name in ("a", "b")]
    rounds = Rounds(tmp_path, *sets)
    rounds.run()
    listed = entries(rounds.document(".well-known/resourcesync"))
    assert [one.loc for one in listed] == [f"{BASE}/{name}/capabilitylist.xml" for name in ("a", "b")]
    for name, one in zip(("a", "b"), listed, strict=True):
        _md, links = root_of(rounds.document(f"{name}/capabilitylist.xml"))
        assert links["describedby"] == one.link["href"] == f"{BASE}/{name}/description.ttl"
        assert [row.md["capability"] for row in entries(rounds.document(f"{name}/capabilitylist.xml"))] == [
            "resourcelist",
            "changelist",
        ]
        assert rounds.imported(name).taken == 1


def test_tim_10_the_description_is_made_of_the_dataset(tmp_path: Path) -> None:
    """VoID and DCAT, read by another library; counts follow each change."""
    turtle = """@prefix e: <http://e.example/> . e:a a e:T ; e:p "1 > 0 \\"x\\" ." , "2"@en . e:b a e:T, e:U .
        GRAPH <http://g.example/> { e:a e:p e:b . e:c e:q "<http://no.example/>" . }"""
    path = put(tmp_path / "d.trig", turtle)
    rounds = Rounds(
        tmp_path, file_set(path, title='The "people"\\', licence="https://creativecommons.org/publicdomain/zero/1.0/")
    )
    query = """PREFIX void: <http://rdfs.org/ns/void#> PREFIX dcat: <http://www.w3.org/ns/dcat#>
        PREFIX dcterms: <http://purl.org/dc/terms/> PREFIX sd: <http://www.w3.org/ns/sparql-service-description#>
        SELECT ?triples ?title ?licence ?dump (GROUP_CONCAT(DISTINCT ?p) AS ?ps) (GROUP_CONCAT(DISTINCT ?c) AS ?cs)
        (GROUP_CONCAT(DISTINCT ?g) AS ?gs) {
          ?d a void:Dataset, dcat:Dataset ; void:triples ?triples ; void:dataDump ?dump ; dcterms:title ?title ;
             dcterms:license ?licence ; dcat:distribution/dcat:downloadURL ?dump .
          OPTIONAL { ?d void:propertyPartition [ void:property ?pi ; void:triples ?pn ] }
          OPTIONAL { ?d void:classPartition [ void:class ?ci ; void:entities ?cn ] }
          OPTIONAL { ?d sd:namedGraph [ sd:name ?gi ; sd:graph/void:triples ?gn ] }
          BIND(CONCAT(REPLACE(STR(?pi), ".*[/#]", ""), "=", STR(?pn)) AS ?p)
          BIND(CONCAT(REPLACE(STR(?ci), ".*[/#]", ""), "=", STR(?cn)) AS ?c)
          BIND(CONCAT(STR(?gi), "=", STR(?gn)) AS ?g)
        } GROUP BY ?triples ?title ?licence ?dump"""

    def told() -> list[object]:
        graph = rdflib.Graph()
        graph.parse(data=rounds.document("d/description.ttl"), format="turtle")
        (row,) = graph.query(query)
        assert isinstance(row, rdflib.query.ResultRow)
        plain, lists = [str(one) for one in row[:4]], [sorted(str(one).split()) for one in row[4:]]
        return [*plain, *lists]

    rounds.run()
    licence = "https://creativecommons.org/publicdomain/zero/1.0/"
    fixed = ['The "people"\\', licence, f"{BASE}/d/dataset.nq"]
    assert told() == ["7", *fixed, ["p=3", "q=1", "type=3"], ["T=2", "U=1"], ["http://g.example/=2"]]
    put(path, "@prefix e: <http://e.example/> . e:a a e:U . GRAPH <http://h.example/> { e:x e:r 1 . }")
    rounds.run()
    assert told() == ["2", *fixed, ["r=1", "type=1"], ["U=1"], ["http://h.example/=1"]]


def test_tim_10_the_description_says_what_is_configured(tmp_path: Path) -> None:
    """In Turtle and as JSON-LD alike; the patches are a distribution, and named graphs are those of an sd:Dataset."""
    path = put(tmp_path / "d.trig", "@prefix e: <http://e.example/> . GRAPH e:g { e:a e:p 1 . }")
    options = {
        "title": "Leute",
        "description": 'Wer "da" ist\n',
        "creator": ("https://orcid.example/1", "Jane <Doe>"),
        "publisher": "https://library.example/",
        "identifier": "doi:10.1/2",
        "endpoint": "https://data.example/sparql",
        "language": "de",
        "licence": "https://licence.example/",
    }
    rounds = Rounds(tmp_path, file_set(path, **options))  # type: ignore[arg-type]
    rounds.run()
    graph = rdflib.Graph().parse(data=rounds.document("d/description.ttl"), format="turtle")
    triples_of_it = (one.triple for one in ox.parse(rounds.document("d/description.jsonld"), ox.RdfFormat.JSON_LD))
    lines = ox.serialize(triples_of_it, format=ox.RdfFormat.N_TRIPLES)
    other = rdflib.Graph().parse(data=lines, format="nt")
    assert rdflib.compare.isomorphic(graph, other)
    query = """PREFIX dcat: <http://www.w3.org/ns/dcat#> PREFIX dcterms: <http://purl.org/dc/terms/>
        PREFIX foaf: <http://xmlns.com/foaf/0.1/> PREFIX sd: <http://www.w3.org/ns/sparql-service-description#>
        PREFIX void: <http://rdfs.org/ns/void#> PREFIX spdx: <http://spdx.org/rdf/terms#>
        SELECT ?title ?text ?person ?publisher ?id ?endpoint ?graph ?list {
          ?d a sd:Dataset ; dcterms:title ?title ; dcterms:description ?text ; dcterms:publisher ?publisher ;
             dcterms:license ?licence ;
             dcterms:creator <https://orcid.example/1>, [ a foaf:Agent ; foaf:name ?person ] ;
             dcterms:identifier ?id ; void:sparqlEndpoint ?endpoint ;
             sd:namedGraph [ sd:name ?graph ; sd:graph [ a sd:Graph ] ] ;
             dcat:distribution [ dcterms:title [] ; dcterms:license ?licence ; dcat:downloadURL ?trig ;
               dcat:mediaType <https://www.iana.org/assignments/media-types/application/trig> ] ;
             dcat:distribution [ spdx:checksum [ a spdx:Checksum ] ] ;
             dcat:distribution [ dcterms:license ?licence ; dcat:accessURL ?list ; dcat:mediaType
               <https://www.iana.org/assignments/media-types/application/vnd.timbuctoo-rdf.nquads_unified_diff> ] .
          <https://orcid.example/1> a foaf:Agent . ?publisher a foaf:Agent .
          FILTER(STRENDS(STR(?trig), "/d/dataset.trig")) }"""
    (row,) = graph.query(query)
    assert isinstance(row, rdflib.query.ResultRow)
    told = (options["description"], "Jane <Doe>", options["publisher"], options["identifier"], options["endpoint"])
    assert row[0] == rdflib.Literal("Leute", lang="de")
    assert tuple(map(str, row[1:])) == (*told, "http://e.example/g", f"{BASE}/d/changelist.xml")
    before = rounds.document("d/description.ttl")
    rounds.run()
    assert rounds.document("d/description.ttl") == before


@pytest.mark.parametrize("lines", [2, 60], ids=["in one piece", "in several"])
def test_bad_lines_are_left_out_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """They are counted and listed, with their line numbers, and the description says how many are missing."""
    monkeypatch.setattr(canonical, "_PIECE_OCTETS", 500)
    bad = '<http://d.example/a b> <http://d.example/p> "1" .\n'
    path = put(tmp_path / "d.nt", triples(1, 2) * (lines // 2) + bad + triples(3) + "no RDF\n")
    rounds = Rounds(tmp_path, file_set(path))
    with failing("HW-RDF-01"):
        rounds.run()
    rounds = Rounds(tmp_path, file_set(path, lenient=True))
    rounds.run()
    assert rounds.document("d/dataset.nq") == triples(1, 2, 3).encode()
    (notice,) = [one for one in rounds.notices if one.rule == "HW-DAT-14"]
    assert "2 bad statements are left out" in notice.message
    assert f"line {lines + 1}: " in notice.message
    assert f"line {lines + 3}: " in notice.message
    assert state_of(rounds).left_out == 2
    assert b"2 statements of what the dataset is made of could not be read" in rounds.document("d/description.ttl")
    assert b"2 bad statements left out" in run_here("status", rounds.state).stdout
    put(path, triples(1, 2, 3))
    rounds.run()
    assert state_of(rounds).left_out == 0
    assert b"could not be read" not in rounds.document("d/description.ttl")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", triples(1) + "x\n" * 2], ids=["no RDF at all", "hardly any"])
def test_a_file_that_is_hardly_rdf_is_refused_also_where_bad_lines_are_left_out(tmp_path: Path, text: str) -> None:
    rounds = Rounds(tmp_path, file_set(put(tmp_path / "d.nt", text), lenient=True, may_be_empty=True))
    with failing(
        "HW-RDF-01", match="2 bad lines, . good statements: not published although lenient; the first: line ."
    ):
        rounds.run()


def test_a_notice_says_when_a_dataset_becomes_too_large_for_other_syntaxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_documents, "FORMS_OCTETS", 200)
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    assert not any("N-Quads only" in one.message for one in rounds.notices)
    assert b"description.ttl#dataset.ttl>" in rounds.document("d/description.ttl")
    for count in (20, 30):
        put(path, triples(*range(count)))
        rounds.run()
        assert sum("offered as N-Quads only" in one.message for one in rounds.notices) == 1
        assert b"dataset.ttl>" not in rounds.document("d/description.ttl")
        assert not [*rounds.state.glob("documents/d/dataset.[tj]*")]


def test_blank_nodes_are_refused_beside_bad_lines(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nt", triples(1) + "x\n" + '_:b <http://d.example/p> "1" .\n')
    rounds = Rounds(tmp_path, file_set(path, lenient=True, blank_nodes="refuse"))
    with pytest.raises(BlankNodesRefused) as refused:
        rounds.run()
    assert refused.value.line == 3


@pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: one.name)
@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "gzip"])
def test_tim_12_the_syntaxes(tmp_path: Path, syntax: object, *, is_packed: bool) -> None:
    """Whatever a dataset is written in, compressed or not, the published one is the same (TIM-A9, TIM-A16)."""
    assert syntax in SYNTAXES
    quads = [
        ox.Quad(
            ox.NamedNode("http://e.example/é"), ox.NamedNode("http://e.example/p"), ox.Literal("1\n2", language="en")
        ),
        ox.Quad(
            ox.NamedNode("http://e.example/b"), ox.NamedNode("http://e.example/p"), ox.NamedNode("http://e.example/c")
        ),
    ]
    kind = next(one for one in SYNTAXES if one is syntax)
    octets = ox.serialize(quads, format=kind.parser_format)
    assert octets is not None
    name = f"d.{kind.suffixes[0]}" + (".gz" if is_packed else "")
    rounds = Rounds(tmp_path, file_set(put(tmp_path / name, gzip.compress(octets) if is_packed else octets)))
    rounds.run()
    expected = b"".join(sorted(f"{one} .\n".encode() for one in quads)).replace(b"\\u00E9", "é".encode())
    assert rounds.document("d/dataset.nq") == expected
    graph = rdflib.Graph().parse(data=rounds.document("d/dataset.nq").decode(), format="nt")
    assert len(graph) == 2
    assert rounds.imported().taken == 1


def test_a_folder_of_files_is_one_dataset(tmp_path: Path) -> None:
    """Files come, change and go; what is of no syntax of RDF is passed over, and so are names with a dot before."""
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    put(folder / "a.nt", triples(1))
    put(folder / "sub" / "b.ttl", '<http://d.example/x> <http://d.example/p> "x" .')
    put(folder / "notes.txt", "no RDF")
    put(folder / ".hidden.nt", "no RDF")
    rounds = Rounds(tmp_path, file_set(folder))
    rounds.run()
    assert len(rounds.imported().lines) == 2
    put(folder / "c.nq", '<http://d.example/x> <http://d.example/p> "y" <http://g.example/> .\n')
    rounds.run()
    assert len(rounds.imported().lines) == 3
    (folder / "a.nt").unlink()
    rounds.run()
    assert len(rounds.imported().lines) == 2
    put(folder / "d.n3", triples(1))  # known, and not read: it is not left out in silence
    with pytest.raises(BadRdf, match="N3 is not read"):
        rounds.run()
    (folder / "d.n3").unlink()
    rounds.run()
    assert len(rounds.imported().lines) == 2
    assert len(entries(rounds.document("d/changelist.xml"))) == 3


def test_nothing_changed_nothing_published(tmp_path: Path) -> None:
    """Not by another order, other prefixes, another syntax of the same file; and an untouched file is not read."""
    path = put(tmp_path / "d.ttl", '@prefix e: <http://e.example/> . e:a e:p "1", "2" .')
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    before = {one: (rounds.state / "documents" / one).read_bytes() for one in ("d/changelist.xml", "d/dataset.nq")}
    put(path, '<http://e.example/a> <http://e.example/p> "2" , "1" . # said otherwise\n')
    assert [one.scanned.unchanged for one in rounds.run()] == [1]
    seen = path.stat()
    path.write_bytes(b"\xff" * seen.st_size)  # would be refused if it were read
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    with pytest.raises(BadRdf):  # its change time tells
        rounds.run()
    put(path, '<http://e.example/a> <http://e.example/p> "1", "2" .')
    rounds.run()
    assert before == {one: (rounds.state / "documents" / one).read_bytes() for one in before}


def test_nqud_a6_blank_nodes_become_stable_iris(tmp_path: Path) -> None:
    """What a change does not touch keeps its name; below a prefix of the origin, or a given one."""
    path = put(tmp_path / "d.ttl", "@prefix e: <http://e.example/> . e:a e:p [ e:q 1 ] . e:b e:p [ e:q 2 ] .")
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    first = rounds.imported().lines
    assert sum(b"<http://data.example/.well-known/genid/d/" in one for one in first) == 4
    put(path, "@prefix e: <http://e.example/> . e:b e:p [ e:q 2 ] . e:a e:p [ e:q 3 ] .")
    rounds.run()
    assert len(first & rounds.imported().lines) == 2
    own = Rounds(tmp_path / "own", file_set(path, genid="https://ids.example/x/"))
    own.folder.mkdir()
    own.run()
    assert sum(b"<https://ids.example/x/" in one for one in own.imported().lines) == 4


def test_nqud_a6_blank_nodes_are_refused_where_that_is_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / "d.ttl", "@prefix e: <http://e.example/> . e:a e:p [] .")
    rounds = Rounds(tmp_path, file_set(path, blank_nodes="refuse"))
    with pytest.raises(BlankNodesRefused):
        rounds.run()
    put(path, "@prefix e: <http://e.example/> . e:a e:p e:b .")
    rounds.run()
    assert rounds.imported().taken == 1


def test_a_file_that_is_no_rdf_changes_nothing(tmp_path: Path) -> None:
    """Cut off, missing, of an unknown name: what was published stays."""
    path = put(tmp_path / "d.ttl", '<http://e.example/a> <http://e.example/p> "1" .')
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    before = rounds.document("d/changelist.xml")
    for octets in (b'<http://e.example/a> <http://e.example/p> "1', b"\x1f\x8b\x08\x00", b"<a> <b> <c> ."):
        put(path, octets)
        with pytest.raises(BadRdf):
            rounds.run()
    path.unlink()
    with failing("HW-DAT-03"):
        rounds.run()
    assert rounds.document("d/changelist.xml") == before
    assert rounds.imported().taken == 1
    unknown = Rounds(tmp_path / "unknown", file_set(put(tmp_path / "d.txt", triples(1))))
    unknown.folder.mkdir()
    with failing("HW-DAT-03"):
        unknown.run()


def test_a_dataset_that_became_empty_is_published_where_that_is_allowed(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nt", "")
    rounds = Rounds(tmp_path, file_set(path))
    with pytest.raises(SourceFault, match="HW-DAT-04"):
        rounds.run()
    put(path, triples(1))
    rounds.run()
    put(path, "")
    with pytest.raises(SourceFault, match="HW-DAT-04"):
        rounds.run()
    assert len(rounds.imported().lines) == 1
    allowed = Rounds(tmp_path, file_set(path, may_be_empty=True))
    allowed.run()
    assert allowed.imported().lines == set()
    put(path, triples(5))
    allowed.run()
    assert len(allowed.imported().lines) == 1


def test_a_dataset_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published is one state of it, told when it takes another reading; and none where it never rests."""
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    read: Callable[[inputs.PathInput, Path], list[RdfInput]] = inputs.PathInput.read
    times = iter([True, False])

    def changing(self: inputs.PathInput, scratch: Path) -> list[RdfInput]:
        found = read(self, scratch)
        if next(times, True):
            put(path, triples(2, 3, 4))
        return found

    monkeypatch.setattr(inputs.PathInput, "read", changing)
    rounds.run()
    assert len(rounds.imported().lines) == 3
    assert [one.rule for one in rounds.notices] == ["HW-DAT-12", "HW-DAT-11"]
    put(path, triples(7))
    with pytest.raises(InputChanged):
        rounds.run()
    assert len(rounds.imported().lines) == 3


def test_a_set_with_other_resources_becomes_no_dataset(tmp_path: Path) -> None:
    """TIM-06: every file of the Resource List belongs to the dataset."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    Rounds(tmp_path, SetConfig(name="d", files=str(tmp_path / "files"))).run()
    with pytest.raises(UsageFault, match="HW-DAT-06"):
        Rounds(tmp_path, file_set(put(tmp_path / "d.nt", triples(1)))).run()


@pytest.mark.parametrize("place", [".", "state", "state/documents/d/dataset.nq"])
def test_a_dataset_is_not_made_of_what_was_published_of_it(tmp_path: Path, place: str) -> None:
    """A folder with the state in it, the state itself, a file that we write."""
    rounds = Rounds(tmp_path, file_set(tmp_path / place))
    with pytest.raises(FolderOverlap):
        rounds.run()


def test_hubs_are_told_of_the_patch(tmp_path: Path) -> None:
    """TIM-A1: the entry of a Change Notification has the link that the Change List has."""
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    put(path, triples(1, 2))
    rounds.run()
    with Source(rounds.config) as source:
        first, last = source.catalog.changes("d")
        payload = change_payload(source.site, source.catalog, "d", first.at, after=1, last=2, most=9)
    assert payload.last == last.seq
    assert entries(payload.octets)[0].link == entries(rounds.document("d/changelist.xml"))[1].link


def test_a_dry_run_says_what_would_be_read(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    config = tmp_path / "source.toml"
    config.write_text(
        f'state = "state"\nbase_url = "{BASE}"\n[[set]]\nname = "d"\nprofile = "rdf-dataset"\ndataset = "d.nt"\n'
    )

    def found() -> dict[str, int]:
        done = run_here("publish", config, "--dry-run", "--json")
        assert done.returncode == 0, done.stderr
        (told,) = json.loads(done.stdout)["sets"]
        return {key: told[key] for key in ("created", "updated", "unchanged")}

    assert found() == {"created": 1, "updated": 0, "unchanged": 0}
    assert not rounds.state.exists()
    rounds.run()
    assert found() == {"created": 0, "updated": 0, "unchanged": 1}
    put(path, triples(2))
    assert found() == {"created": 0, "updated": 1, "unchanged": 0}
    assert rounds.imported().taken == 1


def test_a_file_that_has_just_changed_comes_to_rest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the clock two states look alike."""
    monkeypatch.setattr(intake, "SETTLED_SECONDS", 0.2)
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    assert len(rounds.imported().lines) == 1


def test_a_file_whose_time_lies_ahead_is_not_waited_for_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back, or the file keeps its time from a machine that is ahead: it rests as long as others."""
    monkeypatch.setattr(intake, "SETTLED_SECONDS", 0.2)
    looks = 0

    def sleep(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        assert looks < 100, "it waits for the time of the file"
        time.sleep(0.02)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr("headwater.source.published_dataset.time", clock)
    tomorrow = time.time() + 86_400
    rounds = Rounds(tmp_path, file_set(tmp_path / "d.nt"))
    for count in (1, 2):
        os.utime(put(tmp_path / "d.nt", triples(*range(count))), (tomorrow, tomorrow))
        before = looks
        rounds.run()
        assert looks > before, "it was read within a tick of its change"
        assert len(rounds.imported().lines) == count


@pytest.mark.parametrize("what", ["dataset", "patch", "lost dataset", "lost patch"])
def test_tim_08_where_the_series_is_broken_nothing_is_published(tmp_path: Path, what: str) -> None:
    """A lost or damaged state is made again of the patches; such a patch is told, and nothing is published."""
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    put(path, triples(1, 2))
    rounds.run()
    state, folder = state_of(rounds), DatasetFolder(rounds.state, "d")
    with Source(rounds.config) as source:
        patches = list(patches_from(source.catalog, "d"))
    file = folder.dataset_of(state) if "dataset" in what else folder.patch_of(patches[0])
    if what.startswith("lost"):
        file.unlink()
    else:
        octets = bytearray(file.read_bytes())
        octets[-4] ^= 1
        file.write_bytes(octets)
    put(path, triples(1, 2, 3))
    before = rounds.document("d/changelist.xml")
    if "patch" in what:
        with pytest.raises(BrokenSeries):
            rounds.run()
        assert rounds.document("d/changelist.xml") == before
        assert len(rounds.imported().lines) == 2
    else:
        rounds.run()
        assert len(rounds.imported().lines) == 3


def test_tim_08_closed_change_lists_and_their_patches_stay(tmp_path: Path) -> None:
    """Over an index, oldest first, all patches lead from nothing to the dataset; each entry has its link."""
    path = put(tmp_path / "d.nt", triples(0))
    rounds = Rounds(tmp_path, file_set(path, rotation_seconds=0.01), segment_entries=2)
    for number in range(1, 6):
        put(path, triples(number, number + 1))
        rounds.run()
    top = ET.fromstring(rounds.document("d/changelist.xml"))
    parts = [str(one.text) for one in top.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    assert len(parts) > 2
    imported = ImportedDataset()
    for part in parts:
        import_changes(rounds.fetch, part, imported)
    assert imported.taken == 5
    assert b"".join(sorted(imported.lines)) == rounds.document("d/dataset.nq")
    first = entries(rounds.fetch(parts[0]))[0].md["datetime"]
    assert {root_of(rounds.fetch(url))[0]["from"] for url in (parts[0], f"{BASE}/d/changelist.xml")} == {first}


def test_tim_08_what_others_have_damaged_in_the_documents_is_put_right(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    names = [one for one in (rounds.state / "documents" / "d").rglob("*") if one.suffix in (".nq", ".nqud", ".ttl")]
    held = {one: one.read_bytes() for one in names}
    for number, one in enumerate(names):
        if number:
            one.write_bytes(b"damaged")
        else:
            one.unlink()
    rounds.run()
    assert {one: one.read_bytes() for one in names} == held
    rounds.imported()


def test_another_base_url_begins_the_patches_anew(tmp_path: Path) -> None:
    """The Change Lists begin anew then, so what they lead to has to begin with nothing."""
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    put(path, triples(1, 2))
    rounds.run()
    moved = Rounds(tmp_path, file_set(path), base="http://other.example")
    moved.run()
    newest = entries(moved.document("d/changelist.xml"))  # TIM-04: no index while there is one Change List
    assert [(one.md["change"], one.loc) for one in newest] == [("created", "http://other.example/d/dataset.nq")]
    patch = moved.fetch(newest[0].link["href"])
    assert (
        hashlib.sha256(b"".join(one[1:] for one in patch.splitlines(keepends=True))).hexdigest() in newest[0].md["hash"]
    )
    put(path, triples(2))
    moved.run()
    assert [one.md["change"] for one in entries(moved.document("d/changelist.xml"))] == ["created", "updated"]


@pytest.mark.parametrize("what", ["an older catalog", "no catalog", "no state folder but the documents"])
def test_what_was_published_and_is_forgotten_begins_anew(tmp_path: Path, what: str) -> None:
    """The Change Lists begin anew then (AMB-23), with a patch that leads from nothing: TIM-08 holds at every moment."""
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    catalog = rounds.state / "catalog.sqlite"
    older = catalog.read_bytes()
    for numbers in ((1, 2), (2, 3)):
        put(path, triples(*numbers))
        rounds.run()
    for one in rounds.state.glob("catalog.sqlite*"):
        one.unlink()
    if what == "an older catalog":
        catalog.write_bytes(older)
    elif what != "no catalog":
        shutil.rmtree(rounds.state / "datasets")
    rounds.run()
    newest = entries(rounds.document("d/changelist/open.xml"))
    assert newest[0].md["change"] == "created"
    lines: set[bytes] = set()
    for change in newest:
        apply(rounds.fetch(change.link["href"]), lines)
    assert b"".join(sorted(lines)) == rounds.document("d/dataset.nq") == triples(2, 3).encode()
    head, _links = root_of(rounds.document("d/changelist/open.xml"))
    assert head["from"] == newest[0].md["datetime"]
    assert run_here("rdf", "replay", rounds.state, "d").returncode == 0


def test_what_a_killed_run_has_left_is_removed(tmp_path: Path) -> None:
    path = put(tmp_path / "d.nt", triples(1))
    rounds = Rounds(tmp_path, file_set(path))
    rounds.run()
    folder = rounds.state / "datasets" / "d"
    held = sorted(folder.iterdir())
    for name in ("00002-0123456789abcdef.nq", "00002-0123456789abcdef.nqud"):
        (folder / name).write_text("left over")
    (folder / "scratch").mkdir()
    (folder / "scratch" / "new.nq").write_text("left over")
    rounds.run()
    assert sorted(folder.iterdir()) == held


def test_relative_iris_of_a_file_are_resolved_against_base_iri(tmp_path: Path) -> None:
    """Another base is another dataset, though the file is as it was."""
    path = put(tmp_path / "d.ttl", "<#me> <knows> </x> .")
    Rounds(tmp_path, file_set(path, base_iri="http://b.example/people/all")).run()
    moved = Rounds(tmp_path, file_set(path, base_iri="https://c.example/"))
    with pytest.raises(BadRdf, match="relative"):
        Rounds(tmp_path / "other", file_set(path)).run()
    assert Rounds(tmp_path, file_set(path, base_iri="http://b.example/people/all")).imported().lines == {
        b"<http://b.example/people/all#me> <http://b.example/people/knows> <http://b.example/x> .\n"
    }
    moved.run()
    assert moved.imported().lines == {b"<https://c.example/#me> <https://c.example/knows> <https://c.example/x> .\n"}


def test_relative_iris_of_the_files_of_a_folder_are_resolved_against_their_paths(tmp_path: Path) -> None:
    """So `<#me>` of two files are two; names are quoted as in URIs."""
    folder = tmp_path / "people"
    (folder / "s").mkdir(parents=True)
    put(folder / "é b.ttl", "<#me> <http://p.example/> <> .")
    put(folder / "s" / "a:c.ttl", "<#me> <http://p.example/> <../x> .")
    rounds = Rounds(tmp_path, file_set(folder, base_iri="http://b.example/p/"))
    rounds.run()
    assert rounds.imported().lines == {
        b"<http://b.example/p/%C3%A9%20b.ttl#me> <http://p.example/> <http://b.example/p/%C3%A9%20b.ttl> .\n",
        b"<http://b.example/p/s/a%3Ac.ttl#me> <http://p.example/> <http://b.example/p/x> .\n",
    }


def test_the_position_of_a_store_that_a_sync_keeps_is_none_of_its_dataset(tmp_path: Path) -> None:
    """As `sync --store` leaves it; a graph whose name only begins so is one of the dataset, and so is its name."""
    lines = [*triples(1, 2).splitlines(keepends=True), f'<http://s/> <http://p/> "x" <{POSITION_GRAPH}2> .\n']
    lines.append(f"<http://s/> <http://p/> <{POSITION_GRAPH}> .\n")
    dataset = put(tmp_path / "d.nq", "".join(sorted(lines)))
    EmbeddedStore(tmp_path / "store").load(dataset, StorePosition("http://o.example/d.nq", "a" * 64, 3))
    config = SetConfig(name="d", profile="rdf-dataset", oxigraph=str(tmp_path / "store"))
    rounds = Rounds(tmp_path, config)
    rounds.run()
    assert rounds.imported().lines == {one.encode() for one in lines}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of dataset, sparql and oxigraph"),
        ({"dataset": "d.nq", "sparql": "http://h.example/query"}, "one of dataset, sparql and oxigraph"),
        ({"sparql": "http://h.example/query", "syntax": "turtle"}, "syntax belongs to dataset"),
        ({"dataset": "d.ttl.gz", "lenient": True}, "N-Quads and N-Triples only, not with Turtle"),
        ({"dataset": "d.nq", "syntax": "jsonld", "lenient": True}, "not with JSON-LD"),
        ({"dataset": "d.nq", "sparql_authorization_env": "X"}, "belongs to sparql"),
        ({"sparql": "http://h.example/query", "base_iri": "http://b.example/"}, "belongs to dataset"),
        ({"dataset": "d.nq", "base_iri": "people/"}, "an absolute IRI"),
        ({"dataset": "d.nq", "base_iri": "http://b.example/#me"}, "an absolute IRI"),
        ({"dataset": "d.nq", "base_iri": "http://b.example/ x"}, "an absolute IRI"),
        ({"dataset": "d.nq", "retention_seconds": 60.0}, "retention_seconds does not go with a dataset"),
        ({"dataset": "d.nq", "mirrors": ("http://m.example/{path}",)}, "mirrors does not go with a dataset"),
        ({"dataset": "d.nq", "classic": True}, "classic does not go with a dataset"),
        ({"dataset": "d.nq", "patch": ("json",)}, "patch does not go with a dataset"),
    ],
)
def test_settings_that_would_break_the_profile_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(BadDatasetConfig, match=words):
        SetConfig(profile="rdf-dataset", **given)  # type: ignore[arg-type]
