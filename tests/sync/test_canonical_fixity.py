"""RDF documents whose octets vary are verified by a hash of N-Quads (docs/reference/addresses-and-additions.md)."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.processes.pool import JobEnded, LimitedProcess
from headwater.rdf import BadRdf, RdfTooCostly
from headwater.rdf import canonical as canonical_module
from headwater.rdf.canonical import CanonicalHasher
from headwater.rdf.syntaxes import N_QUADS, SYNTAXES, TURTLE
from headwater.spec.kinds import HEADWATER
from headwater.spec.records import Entry
from tests.source.datasets import importer
from tests.support.copying import check, go, tree
from tests.support.documents import read_bytes
from tests.support.fake_source import Handler, Reply, Site, Source, at, sha, url
from tests.support.pool_functions import suicide
from tests.support.program import run_here
from tests.support.serving import face
from tests.support.waiting import settle

NS = "http://e.org/"
TEXT = b"<> <http://e.org/p> _:a . _:a <http://e.org/q> 1, 2 .\n"
OTHER = b"@prefix e: <http://e.org/> . _:b e:q 2, 1 . <> e:p _:b .\n"
CLIQUE = b"".join(
    b"_:n%d <http://e.org/p> _:n%d .\n" % (one, other) for one in range(14) for other in range(14) if one != other
)


def canonical(uri: str, octets: bytes = TEXT) -> str:
    """What `rdf hash` says of a document at this URI."""
    with_process = CanonicalHasher()
    try:
        return with_process.digest(Path("/nowhere"), TURTLE, uri, octets)
    finally:
        with_process.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Source() as source:
        yield Site(source)


def listed(site: Site, name: str, digest: str, **more: Any) -> str:
    stated: dict[str, Any] = {"xmlns:hw": HEADWATER, "hw:canonical": f"sha-256:{digest}"}
    return url(site.uri(name), at(0), **stated | {"type": "text/turtle"} | more)


def publish(site: Site, *entries: str) -> None:
    site.publish_list(entries)
    site.publish_capabilities("resourcelist")
    site.publish_description()


def varying(site: Site, name: str, *bodies: bytes, kind: str = "text/turtle") -> None:
    """Another body for each request."""
    asked = iter(bodies * 20)

    def page(handler: Handler) -> Reply:
        return Reply(next(asked), headers={"Content-Type": kind}, etag=False)

    site.source.pages[f"/{site.name}/resources/{name}"] = page


def test_octets_that_vary_are_verified_by_what_they_say(site: Site, tmp_path: Path) -> None:
    varying(site, "a.ttl", TEXT, OTHER)
    publish(site, listed(site, "a.ttl", canonical(site.uri("a.ttl"))))
    copy = tmp_path / "copy"
    assert go(site.source.base, copy).status == 0
    assert set(tree(copy).values()) == {TEXT}
    assert check(site.source.base, copy).exit_status == 0
    (file,) = (path for path in copy.rglob("a.ttl"))
    file.write_bytes(OTHER)  # says the same
    os.utime(file, (1, 1))
    assert check(site.source.base, copy).exit_status == 0
    file.write_bytes(OTHER.replace(b"2", b"3"))
    found = check(site.source.base, copy)
    assert (found.exit_status, found.sets[0].different) == (1, 1)
    assert go(site.source.base, copy).status == 0


HOSTILE: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "another document": (TEXT.replace(b"1", b"3"), {}, "sha-256 of canonical N-Quads is"),
    "no RDF": (b"<html>", {}, "a hash of canonical N-Quads is listed, and"),
    "cut off": (TEXT[:-3], {}, "a hash of canonical N-Quads is listed, and"),
    "of no RDF syntax": (b"<html>", {"type": "text/plain"}, "a hash of canonical N-Quads is listed, and"),
    "a bomb": (gzip.compress((b"# " + b"x" * 1000 + b"\n") * 20_000), {}, "16,777,216 octets"),
    "a graph that takes for ever": (CLIQUE, {}, "cannot be canonicalised"),
    "another length": (TEXT, {"length": len(TEXT) + 1}, "length is"),
    "octets of another digest": (TEXT, {"hash": sha(OTHER)}, "sha-256 is"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_does_not_say_what_is_listed_is_refused(
    case: str, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is placed, and an octet digest that is listed decides, whatever the document says."""
    monkeypatch.setattr(canonical_module, "_HASHER_SECONDS", 2.0)
    body, more, reason = HOSTILE[case]
    name = "a" if case == "of no RDF syntax" else "a.ttl"
    varying(site, name, body, kind=more.get("type", "text/turtle"))
    varying(site, "good.ttl", OTHER)
    good = listed(site, "good.ttl", canonical(site.uri("good.ttl")))
    publish(site, listed(site, name, canonical(site.uri(name)), **more), good)
    ran = go(site.source.base, tmp_path)
    assert ran.status == 4
    assert list(tree(tmp_path).values()) == [OTHER]
    (failed,) = ran.one.failures
    assert reason in failed.reason


NOTHING = hashlib.sha256(b"").hexdigest()
ERROR = b'{"error": "try again later"}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [(ERROR, "application/ld+json"), (b"", "text/turtle"), (b"# cut o", "text/turtle")],
)
def test_the_hash_of_the_empty_dataset_verifies_nothing(site: Site, tmp_path: Path, body: bytes, kind: str) -> None:
    """An error as JSON says nothing, as do no octets: a copy is as without a hash, and no audit proves it by that."""
    varying(site, "a", body, kind=kind)
    publish(site, listed(site, "a", NOTHING, type=kind))
    assert go(site.source.base, tmp_path).status == 0
    (file,) = tmp_path.rglob("a")
    assert check(site.source.base, tmp_path).exit_status == 0  # by its time
    file.write_bytes(body + b" ")
    assert check(site.source.base, tmp_path).sets[0].different == 1  # by our own record of what was placed
    file.write_bytes(TEXT)
    assert check(site.source.base, tmp_path).sets[0].different == 1


@pytest.mark.parametrize(
    ("listed_type", "sent"),
    [(None, "text/turtle"), ("text/plain", "text/turtle; charset=utf-8"), (None, "application/n-triples")],
)
def test_a_syntax_that_only_the_answer_told_is_found_by_an_audit(
    site: Site, tmp_path: Path, listed_type: str | None, sent: str
) -> None:
    body = TEXT if "turtle" in sent else b"<http://e.org/a> <http://e.org/p> _:x .\n"
    varying(site, "a", body, kind=sent)
    publish(site, listed(site, "a", canonical(site.uri("a"), body), type=listed_type))
    assert go(site.source.base, tmp_path).status == 0
    assert check(site.source.base, tmp_path).exit_status == 0
    (file,) = tmp_path.rglob("a")
    file.write_bytes(OTHER)
    assert check(site.source.base, tmp_path).sets[0].different == (0 if "turtle" in sent else 1)


def test_a_listed_media_type_wins_over_that_of_the_answer(site: Site, tmp_path: Path) -> None:
    """TIM-11."""
    varying(site, "a", TEXT, kind="text/turtle")
    publish(site, listed(site, "a", canonical(site.uri("a")), type="application/rdf+xml"))
    ran = go(site.source.base, tmp_path)
    assert len(ran.one.failures) == 1


def test_an_audit_does_not_call_different_what_costs_too_much(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    varying(site, "a.ttl", TEXT)
    publish(site, listed(site, "a.ttl", canonical(site.uri("a.ttl"))))
    assert go(site.source.base, tmp_path).status == 0
    monkeypatch.setattr(canonical_module, "_MOST_ENDED", 0)
    assert check(site.source.base, tmp_path).sets[0].unverifiable == 1


def test_a_digest_that_is_listed_and_fits_needs_no_parser(site: Site, tmp_path: Path) -> None:
    varying(site, "a.ttl", TEXT)
    publish(site, listed(site, "a.ttl", "0" * 64, hash=sha(TEXT), length=len(TEXT)))
    assert go(site.source.base, tmp_path).status == 0


@pytest.mark.parametrize("stated", ["sha-256:", "sha-256:xyz", "md5:" + "0" * 32, ""])
def test_a_canonical_hash_that_cannot_be_read_is_passed_over(stated: str, site: Site, tmp_path: Path) -> None:
    varying(site, "a.ttl", TEXT)
    publish(site, listed(site, "a.ttl", "", **{"hw:canonical": stated}))
    assert go(site.source.base, tmp_path).status == 0


@pytest.mark.parametrize("mode", ["beside", "instead"])
def test_a_source_states_it_and_a_destination_verifies_by_it(mode: str, tmp_path: Path) -> None:
    files, copy = tmp_path / "files", tmp_path / "copy"
    files.mkdir()
    (files / "a.ttl").write_bytes(TEXT)
    (files / "b.nq").write_bytes(b"<http://e.org/a> <http://e.org/p> _:x .\n")
    (files / "bad.ttl").write_bytes(b"<a")
    (files / "poison.nt").write_bytes(b"<http://e.org/a> <http://e.org/p> \r <http://e.org/a> .\n")
    (files / "c.txt").write_bytes(TEXT)
    (files / "context.jsonld").write_bytes(b'{"@context": {"name": "http://e.org/name"}}')
    settle()
    with face(files, tmp_path / "state", canonical_hash=mode, watch=False) as running:
        body = running.get("/files/resourcelist.xml").body
        entries = read_bytes(body)[1]
        assert len(importer.entries(body)) == 6  # who does not know the attribute reads on
        found: dict[str, Entry] = {entry.loc.rpartition("/")[2]: entry for entry in entries}
        stated = {name: dict(entry.extra).get(f"{{{HEADWATER}}}canonical") for name, entry in found.items()}
        assert {name for name, value in stated.items() if value} == {"a.ttl", "b.nq"}
        assert stated["a.ttl"] == f"sha-256:{canonical(found['a.ttl'].loc)}"
        said = run_here("rdf", "hash", "--base", found["a.ttl"].loc, files / "a.ttl")
        assert stated["a.ttl"] == f"sha-256:{said.stdout.decode().strip()}"
        assert (found["a.ttl"].hash is None) is (mode == "instead")
        assert found["bad.ttl"].hash is not None
        assert found["context.jsonld"].hash is not None  # it says nothing
        shown = run_here("inspect", f"{running.url}/files/resourcelist.xml")
        assert f"canonical {stated['a.ttl']}" in shown.stdout.decode()
        assert go(running.url, copy).status == 0
        assert len(tree(copy)) == 6
        assert check(running.url, copy).exit_status == 0
        (files / "a.ttl").write_bytes(OTHER + b"<> <http://e.org/r> 3 .\n")
        settle()
        running.source.run_once()
        assert go(running.url, copy).status == 0
        assert check(running.url, copy).exit_status == 0


def test_it_does_not_go_with_what_needs_digests(tmp_path: Path) -> None:
    config = tmp_path / "source.toml"
    text = f'base_url = "{NS}"\n[[set]]\nfiles = "{tmp_path}"\ncanonical_hash = "instead"\nchange_dump = true\n'
    config.write_text(text)
    done = run_here("publish", config)
    assert done.returncode == 2
    assert "canonical_hash" in done.stderr.decode()


def test_the_hash_is_of_what_is_said(tmp_path: Path) -> None:
    """The same for all syntaxes; of nothing, of duplicates, of blank nodes alone (RDFC-1.0)."""
    hasher = CanonicalHasher()
    try:
        empty = hasher.digest(tmp_path, TURTLE, NS, b"")
        assert empty == hashlib.sha256(b"").hexdigest()
        found = hasher.digest(tmp_path, N_QUADS, NS, b"<a:b> <a:c> <a:d> .\r\n" * 2)
        assert found == hashlib.sha256(b"<a:b> <a:c> <a:d> .\n").hexdigest()
        for syntax in SYNTAXES:
            path = tmp_path / f"a.{syntax.suffixes[0]}"
            (tmp_path / "source.nt").write_bytes(b'_:x <http://e.org/p> "\xc3\xa9"@de .\n')
            assert run_here("rdf", "convert", tmp_path / "source.nt", "-o", path, "--to", syntax.name).returncode == 0
            form = b'_:c14n0 <http://e.org/p> "\xc3\xa9"@de .\n'
            assert hasher.digest(path, syntax, NS) == hashlib.sha256(form).hexdigest()
    finally:
        hasher.close()


def test_costly_documents_end_the_process_and_then_the_patience() -> None:
    hasher = CanonicalHasher(octets=1 << 20, seconds=0.5)
    poison = (Path(), TURTLE, NS, CLIQUE)
    try:
        for _time in range(5):
            with pytest.raises(RdfTooCostly, match="takes more than"):
                hasher.digest(*poison)
        with pytest.raises(RdfTooCostly, match="too many documents"):
            hasher.digest(Path(), TURTLE, NS, TEXT)
        with pytest.raises(BadRdf, match="1,048,576 octets"):
            hasher.digest(Path(), TURTLE, NS, b" " * (2 << 20))
    finally:
        hasher.close()


def test_a_limited_process_is_started_anew() -> None:
    process = LimitedProcess(suicide, 1 << 30)
    try:
        assert [process.do(job, 60) for job in (0, 1)] == [0, 1]
        with pytest.raises(JobEnded, match="fails at it"):
            process.do(2, 60)
        assert process.do(3, 60) == 3
    finally:
        process.close()
