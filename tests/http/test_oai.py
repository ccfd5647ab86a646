"""OAI-PMH at `/S/oai`: what harvesters get, also while the set changes, and whatever they ask for."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import random
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec
import pytest

from headwater.catalog.content import Absence, NoContent
from headwater.catalog.interface import Metadata, Resource, StateUpdate, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import HeadwaterError, StoreFault
from headwater.http import oai
from headwater.http.app import Application
from headwater.http.oai import OaiEndpoint
from headwater.http.server import address_url, listen
from headwater.ingest.content import FileContentReader
from headwater.ingest.harvested import Harvested, file_name, metadata_of, take_harvested
from headwater.ingest.push.feed import Feed
from headwater.publish import oai_index
from headwater.publish.link_rules import DescribedRule
from headwater.publish.oai_index import ListedRecord, ListPlace, OaiIndex
from headwater.publish.oai_records import is_spec, set_of
from headwater.source.config import BadConfiguration, SetConfig, SourceConfig, read_config
from headwater.source.source import Source
from headwater.spec.records import Link
from tests.support.serving import Answer, Process, answering, request
from tests.support.waiting import settle, until

OAI = "{http://www.openarchives.org/OAI/2.0/}"
DC = "{http://purl.org/dc/elements/1.1/}"
MODS = b'<mods xmlns="http://www.loc.gov/mods/v3"><titleInfo><title>%b</title></titleInfo></mods>'
ADMIN = "admin@repository.example.org"
PAIR = DescribedRule(content="{stem}.pdf", record="{stem}.xml")


class Repository:
    """A source with the set `s` that answers OAI-PMH."""

    def __init__(self, source: Source, url: str) -> None:
        self.source, self.url = source, url

    def send(self, query: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
        """One request."""
        if method == "GET":
            return request(self.url, f"/s/oai?{query}", headers=headers)
        form = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return request(self.url, "/s/oai", method, form, query.encode())

    def ask(self, verb: str, **arguments: str) -> ET.Element:
        """The root of an answer; `from_` stands for `from`."""
        named = {name.rstrip("_"): text for name, text in arguments.items()}
        answer = self.send(urlencode({"verb": verb, **named}))
        assert answer.status == 200, answer
        return ET.fromstring(answer.body)

    def error(self, verb: str, **arguments: str) -> str | None:
        """The code of the error that is the answer; None: it is none."""
        found = self.ask(verb, **arguments).find(f"{OAI}error")
        return None if found is None else found.get("code")

    def pages(self, verb: str, **arguments: str) -> Iterator[ET.Element]:
        """The answers of a list, one after another, as a harvester asks for them."""
        while True:
            root = self.ask(verb, **arguments)
            yield root
            token = root.findtext(f"{OAI}{verb}/{OAI}resumptionToken")
            if not token:
                return
            arguments = {"resumptionToken": token}

    def harvest(self, prefix: str = "oai_dc", **arguments: str) -> list[tuple[str, str | None]]:
        """Identifier and content (None: deleted) of each record of a list, in its order."""
        pages = self.pages("ListRecords", metadataPrefix=prefix, **arguments)
        return [told(record) for page in pages for record in page.iter(f"{OAI}record")]

    def dates(self, prefix: str = "oai_dc", **arguments: str) -> dict[str, str]:
        """The datestamp of each header of a list."""
        pages = self.pages("ListIdentifiers", metadataPrefix=prefix, **arguments)
        headers = [one for page in pages for one in page.iter(f"{OAI}header")]
        return {str(one.findtext(f"{OAI}identifier")): str(one.findtext(f"{OAI}datestamp")) for one in headers}

    def id(self, name: str) -> str:
        """The identifier of a resource."""
        return f"{self.url}/s/resources/{name}"

    def round(self) -> None:
        """Publish what has changed."""
        settle()
        self.source.run_once()


def told(record: ET.Element) -> tuple[str, str | None]:
    """Identifier and text of a record; None where it is deleted."""
    header = record.find(f"{OAI}header")
    assert header is not None
    metadata = record.find(f"{OAI}metadata")
    assert (metadata is None) == (header.get("status") == "deleted")
    text = None if metadata is None else " ".join("".join(metadata.itertext()).split())
    return str(header.findtext(f"{OAI}identifier")), text


@contextmanager
def repository(state: Path, **options: object) -> Iterator[Repository]:
    listener = listen("127.0.0.1", 0)
    url = address_url(listener)
    config = SourceConfig(
        state=str(state),
        sets=(SetConfig(name="s", oai=True, oai_admin=ADMIN, **{"watch": "files" not in options, **options}),),  # type: ignore[arg-type]
        base_url=url,
    )
    with Source(config) as source:
        if "files" in options:
            source.run_once()
        else:
            source.push_sets.by_set["s"].open()
            source.start()
            until(lambda: source.is_published("s"))
        endpoint = OaiEndpoint(source.site, source.oai_indexes())
        app = Application(source, source.roots, routes=endpoint.routes())
        try:
            with answering(app, listener):
                yield Repository(source, url)
        finally:
            endpoint.close()


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, octets in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)
    settle()
    return folder


def test_the_six_verbs_over_a_folder(tmp_path: Path) -> None:
    files = put(tmp_path / "f", {"a.pdf": b"%PDF", "a.xml": MODS % b"A", "b c.txt": b"b", "d.xml": MODS % b"D"})
    with repository(tmp_path / "state", files=str(files), described=(PAIR,), title="Papers & more") as it:
        about = it.ask("Identify").find(f"{OAI}Identify")
        assert about is not None
        told_ = {one.tag.removeprefix(OAI): one.text for one in about}
        opened = it.source.catalog.state("s").opened_at
        assert opened is not None
        assert told_ | {"description": None} == {
            "repositoryName": "Papers & more",
            "baseURL": f"{it.url}/s/oai",
            "protocolVersion": "2.0",
            "adminEmail": ADMIN,
            "earliestDatestamp": opened.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "deletedRecord": "persistent",
            "granularity": "YYYY-MM-DDThh:mm:ssZ",
            "compression": "gzip",
            "description": None,
        }
        link = about.find(f"{OAI}description/{{http://www.openarchives.org/rs/terms/}}ln")
        assert link is not None
        assert link.get("href") == f"{it.url}/.well-known/resourcesync"
        formats = it.ask("ListMetadataFormats").iter(f"{OAI}metadataFormat")
        assert [[one.text for one in each] for each in formats] == [
            ["oai_dc", f"{OAI[1:-1]}oai_dc.xsd", f"{OAI[1:-1]}oai_dc/"],
            ["mods", "http://www.loc.gov/standards/mods/v3/mods-3-8.xsd", "http://www.loc.gov/mods/v3"],
        ]
        assert [one.text for one in it.ask("ListSets").iter(f"{OAI}setSpec")] == ["s"]
        assert it.harvest("mods") == [(it.id("a.pdf"), "A"), (it.id("d.xml"), "D")]
        plain = dict(it.harvest())
        assert list(plain) == [it.id("a.pdf"), it.id("b%20c.txt"), it.id("d.xml")]
        assert list(it.dates()) == list(plain)
        found = it.ask("GetRecord", identifier=it.id("b%20c.txt"), metadataPrefix="oai_dc")
        assert found.findtext(f".//{DC}title") == "b c.txt"
        assert found.findtext(f".//{DC}identifier") == it.id("b%20c.txt")
        assert found.findtext(f".//{DC}type") == "Text"
        assert found.findtext(f".//{DC}format") == "text/plain"
        assert found.findtext(f".//{OAI}setSpec") == "s"
        asked = found.find(f"{OAI}request")
        assert asked is not None
        assert asked.text == f"{it.url}/s/oai"
        assert asked.attrib == {"verb": "GetRecord", "identifier": it.id("b%20c.txt"), "metadataPrefix": "oai_dc"}
        paper = it.ask("GetRecord", identifier=it.id("a.pdf"), metadataPrefix="oai_dc")
        assert paper.findtext(f".//{DC}relation") == it.id("a.xml")


def test_the_answer_as_http_has_it(tmp_path: Path) -> None:
    files = put(tmp_path / "f", {f"{number:03}.txt": b"x" for number in range(100)})
    with repository(tmp_path / "state", files=str(files)) as it:
        query = "verb=ListRecords&metadataPrefix=oai_dc"
        plain = it.send(query)
        assert plain.headers["content-type"] == "text/xml; charset=utf-8"
        assert plain.headers["cache-control"] == "no-cache"
        assert plain.headers["vary"] == "Accept-Encoding"
        assert plain.headers["link"] == f'<{it.url}/s/capabilitylist.xml>; rel="resourcesync"'
        assert plain.body.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns=')
        small = it.send(query, headers={"accept-encoding": "gzip"})
        assert small.headers["content-encoding"] == "gzip"
        cut = plain.body.index(b"<request")
        assert gzip.decompress(small.body)[cut:] == plain.body[cut:]
        assert len(small.body) < len(plain.body) / 3
        posted = it.send(query, "POST")
        assert (posted.status, posted.body[cut:]) == (200, plain.body[cut:])
        assert it.send("verb=Identify&x=" + "y" * 70_000, "POST").status == 413
        assert request(it.url, "/s/oai?verb=Identify", "HEAD").body == b""
        assert request(it.url, "/s/oai?verb=Identify", "PUT").status == 405
        documents = [
            request(it.url, one).body.decode() for one in ("/s/capabilitylist.xml", "/.well-known/resourcesync", "/")
        ]
        for document in documents:
            assert f"{it.url}/s/oai?verb=Identify" in document
        assert all('rel="related"' in one for one in documents[:2])


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "badVerb"),
        ("verb=junk", "badVerb"),
        ("verb=Identify&verb=Identify", "badVerb"),
        ("VERB=Identify", "badVerb"),
        ("verb=Identify&x=1", "badArgument"),
        ("verb=GetRecord&metadataPrefix=oai_dc", "badArgument"),
        ("verb=GetRecord&identifier=a", "badArgument"),
        ("verb=GetRecord&identifier=a&identifier=b&metadataPrefix=oai_dc", "badArgument"),
        ("verb=GetRecord&identifier=a%FF&metadataPrefix=oai_dc", "badArgument"),
        ("verb=GetRecord&identifier=a%01&metadataPrefix=oai_dc", "badArgument"),
        ('verb=GetRecord&identifier=invalid"id&metadataPrefix=oai_dc', "idDoesNotExist"),
        ("verb=GetRecord&identifier={id}&metadataPrefix=marc", "cannotDisseminateFormat"),
        ("verb=GetRecord&identifier={id}&metadataPrefix=mods", "cannotDisseminateFormat"),
        ("verb=ListMetadataFormats&identifier=x", "idDoesNotExist"),
        ("verb=ListMetadataFormats&identifier={gone}", "noMetadataFormats"),
        ("verb=ListSets&resumptionToken=x", "badResumptionToken"),
        ("verb=ListRecords", "badArgument"),
        ("verb=ListRecords&metadataPrefix=marc", "cannotDisseminateFormat"),
        ("verb=ListRecords&metadataPrefix=oai_dc&set=other", "noRecordsMatch"),
        ("verb=ListRecords&metadataPrefix=oai_dc&set=a%20b", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&set=", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=junk", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=2020-02-30", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=2020-01-01T00:00:00", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=2020-01-01T00:00:00.5Z", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=%D9%A2020-01-01", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=2020-01-01&until=2020-01-02T00:00:00Z", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&from=2020-01-02&until=2020-01-01", "badArgument"),
        ("verb=ListRecords&metadataPrefix=oai_dc&until=9999-12-31&from=9999-12-31", "noRecordsMatch"),
        ("verb=ListRecords&metadataPrefix=oai_dc&until=0001-01-01", "noRecordsMatch"),
        ("verb=ListRecords&resumptionToken=junk", "badResumptionToken"),
        ("verb=ListRecords&resumptionToken=", "badResumptionToken"),
        ("verb=ListRecords&resumptionToken=junk&metadataPrefix=oai_dc", "badArgument"),
        ("verb=ListIdentifiers&resumptionToken=junk&until=2000-02-05", "badArgument"),
        ("verb=Identify" + "&a=1" * 30, "badArgument"),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_the_protocol(shared: Repository, query: str, code: str) -> None:
    """Its answer is 200 and well-formed, and has the arguments of the request only where these were understood."""
    text = query.replace("{id}", shared.id("b.txt")).replace("{gone}", shared.id("c.txt"))
    for method in ("GET", "POST"):
        answer = shared.send(text, method)
        assert answer.status == 200
        root = ET.fromstring(answer.body)
        error, asked = root.find(f"{OAI}error"), root.find(f"{OAI}request")
        assert error is not None
        assert asked is not None
        assert error.get("code") == code
        assert error.text
        assert bool(asked.attrib) == (code not in ("badVerb", "badArgument"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    folder = tmp_path_factory.mktemp("oai")
    files = put(folder / "f", {"a.xml": MODS % b"A", "b.txt": b"b", "c.txt": b"c", "d.txt": b"d"})
    with repository(folder / "state", files=str(files)) as it:
        (files / "c.txt").unlink()
        it.round()
        yield it


def test_deletions_are_told_for_ever(tmp_path: Path) -> None:
    """Also by an index that is made of the log alone, and of a record in each of its formats."""
    files = put(tmp_path / "f", {"a.xml": MODS % b"A", "b.txt": b"b", "c.txt": b"c", "d.txt": b"d"})
    with repository(tmp_path / "state", files=str(files)) as it:
        it.harvest()
        for name in ("a.xml", "b.txt"):
            (files / name).unlink()
            it.round()
        put(files, {"b.txt": b"again"})
        it.round()
        gone = [("c.txt", True), ("d.txt", True), ("a.xml", False), ("b.txt", True)]
        assert states(it) == gone
        assert it.harvest("mods") == [(it.id("a.xml"), None)]
        assert it.error("GetRecord", identifier=it.id("b.txt"), metadataPrefix="mods") == "cannotDisseminateFormat"
        found = it.ask("GetRecord", identifier=it.id("a.xml"), metadataPrefix="mods").find(f".//{OAI}header")
        assert found is not None
        assert found.get("status") == "deleted"
        dates = [*it.dates().values()]
    for path in (tmp_path / "state" / "oai" / "s").iterdir():
        path.unlink()
    with repository(tmp_path / "state", files=str(files)) as it:
        assert [*it.dates().values()] == dates
        assert states(it) == gone
        assert it.error("ListRecords", metadataPrefix="mods") == "cannotDisseminateFormat"  # nobody knows it any more
        put(files, {"e.xml": MODS % b"E"})
        it.round()
    for path in (tmp_path / "state" / "oai" / "s").iterdir():
        path.unlink()
    with repository(tmp_path / "state", files=str(files)) as it:  # a deletion is told in every format that there is
        assert it.harvest("mods") == [(it.id("a.xml"), None), (it.id("e.xml"), "E")]
        assert it.error("ListMetadataFormats", identifier=it.id("a.xml")) == "noMetadataFormats"


def states(it: Repository) -> list[tuple[str, bool]]:
    """The names of the items, and whether they are there."""
    return [(one.rpartition("/")[2], text is not None) for one, text in it.harvest()]


def test_a_harvest_in_pages_of_a_set_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record comes in its last state, also one that changes between two pages, all within one second."""
    monkeypatch.setattr(oai, "RECORDS", 3)
    names = [f"{number:02}.xml" for number in range(10)]
    files = put(tmp_path / "f", dict.fromkeys(names, MODS % b"old"))
    with repository(tmp_path / "state", files=str(files)) as it:
        found: dict[str, str | None] = {}
        cursors = []
        for number, page in enumerate(it.pages("ListRecords", metadataPrefix="mods")):
            for record in page.iter(f"{OAI}record"):
                found |= [told(record)]
            token = page.find(f".//{OAI}resumptionToken")
            assert token is not None
            cursors.append(token.get("cursor"))
            if number == 0:
                put(files, {names[0]: MODS % b"new", names[5]: MODS % b"new", "10.xml": MODS % b"new"})
                (files / names[1]).unlink()
                it.round()
        expected = {it.id(name): "old" for name in names}
        expected |= {it.id(name): "new" for name in (names[0], names[5], "10.xml")}
        assert found == expected | {it.id(names[1]): None}
        assert cursors == ["0", "3", "6", "9", "12"]
        assert token is not None
        assert not token.text  # the last one is empty


def test_a_token_is_stateless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be asked twice, of another process that has an index of its own, and goes on where it stands."""
    monkeypatch.setattr(oai, "RECORDS", 2)
    files = put(tmp_path / "f", {f"{number}.txt": b"x" for number in range(7)})
    with repository(tmp_path / "state", files=str(files)) as it:
        pages = list(it.pages("ListRecords", metadataPrefix="oai_dc"))
        tokens = [str(page.findtext(f".//{OAI}resumptionToken")) for page in pages]
        assert [bool(one) for one in tokens] == [True, True, True, False]
        other = OaiEndpoint(it.source.site, {"s": another_index(it, tmp_path / "other")})
        try:
            listener = listen("127.0.0.1", 0)
            app = Application(it.source, it.source.roots, routes=other.routes())
            with answering(app, listener):
                second = Repository(it.source, address_url(listener))
                for token, page in zip(tokens, pages[1:], strict=False):
                    for asked in (it, it, second):
                        again = asked.ask("ListRecords", resumptionToken=token)
                        assert [told(one) for one in again.iter(f"{OAI}record")] == [
                            told(one) for one in page.iter(f"{OAI}record")
                        ]
        finally:
            other.close()
        assert it.error("ListIdentifiers", resumptionToken=tokens[0]) == "badResumptionToken"


def another_index(it: Repository, folder: Path) -> OaiIndex:
    (mine,) = it.source.oai_indexes().values()
    mine.close()
    return OaiIndex(folder, mine.of)


def test_from_and_until_are_inclusive_and_exact(tmp_path: Path) -> None:
    """Several changes within one second are all in it, on both sides."""
    files = put(tmp_path / "f", {"a.txt": b"a", "b.txt": b"b"})
    with repository(tmp_path / "state", files=str(files)) as it:
        catalog, name = it.source.catalog, "s"
        at = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(seconds=5)
        first, last = ([f"{letter}{number}.txt" for number in range(3)] for letter in "xy")
        for start, names in ((at, first), (at + dt.timedelta(seconds=1), last)):
            put(files, dict.fromkeys(names, b"x"))
            events = [upsert(one, start + dt.timedelta(microseconds=999_997 * n // 2)) for n, one in enumerate(names)]
            catalog.record(name, events, start + dt.timedelta(seconds=1) - dt.timedelta(microseconds=1))
        one, other = (f"{(at + dt.timedelta(seconds=s)):%Y-%m-%dT%H:%M:%SZ}" for s in (0, 1))
        ids = [{it.id(name) for name in names} for names in (first, last)]
        assert it.dates(from_=one, until=one).keys() == ids[0]
        assert it.dates(from_=other, until=other).keys() == ids[1]
        assert it.dates(from_=one).keys() == ids[0] | ids[1]
        assert it.dates(until=one).keys() == ids[0] | {it.id("a.txt"), it.id("b.txt")}
        assert it.dates(from_=one[:10]).keys() >= ids[0] | ids[1]
        early = f"{catalog.state(name).opened_at:%Y-%m-%dT%H:%M:%SZ}"
        assert it.dates(from_=early).keys() == it.dates().keys()


def upsert(uri: str, at: dt.datetime | None = None, *links: Link) -> Upsert:
    return Upsert(uri, Metadata(type="text/plain", length=1, links=links), at=at)


def announce(feed: Feed, *events: Upsert) -> None:
    feed.record(events, StateUpdate())


def test_no_change_falls_behind_an_answer(tmp_path: Path) -> None:
    """One that is told late, with its own earlier time, comes to who asks from the time of the answer before it."""
    with repository(tmp_path / "state", feed="events") as it:
        feed = it.source.push_sets.by_set["s"]
        began = dt.datetime.now(dt.UTC)
        announce(feed, upsert(it.id("a"), began))
        answer = it.ask("ListIdentifiers", metadataPrefix="oai_dc")
        date = str(answer.findtext(f"{OAI}responseDate"))
        announce(feed, upsert(it.id("b"), began - dt.timedelta(hours=1)))
        assert it.id("b") in it.dates(from_=date)


def harvested(path: str, octets: bytes, *links: Link) -> Harvested:
    return Harvested(path=path, octets=octets, metadata=metadata_of(octets, "application/xml", None, links))


def in_set(spec: str) -> Link:
    return Link(rel="collection", href=f"http://127.0.0.1:9/?verb=ListRecords&set={quote(spec)}")


RECORD = (
    '<record xmlns="http://www.openarchives.org/OAI/2.0/" xmlns:x="urn:x"><header><identifier>{id}</identifier>'
    "<datestamp>2001-01-01</datestamp><setSpec>col:1</setSpec></header><metadata>"
    '<m:a xmlns:m="urn:example:meta" x:b="&lt;"><c/>{text}</m:a></metadata><about><p xmlns="urn:p"/></about></record>'
)


def test_harvested_records_keep_what_the_repository_said(tmp_path: Path) -> None:
    """Their identifier, sets and `about`, the prefix and namespace; the datestamp is ours.

    A record whose identifier no file name can hold stands under its URL.
    """
    root, identifier = tmp_path / "records", "oai:example.org:1/2"
    long = f"oai:example.org:{'x' * 300}"
    options = {"feed": "oai", "url": "http://127.0.0.1:9/", "prefixes": ("meta",), "resource_root": str(root)}
    with repository(tmp_path / "state", **options) as it:
        feed = it.source.push_sets.by_set["s"]
        paths = {one: f"meta/{file_name(one)}" for one in (identifier, long)}
        found = [
            harvested(path, RECORD.format(id=one, text="ä").encode(), in_set("col:1")) for one, path in paths.items()
        ]
        take_harvested(feed, root, [*found, harvested("files/x.pdf", b"%PDF")], [], {})
        long = it.id(quote(paths[long]))
        assert it.harvest("meta") == [(identifier, "ä"), (long, "ä")]
        assert [one for one, _text in it.harvest()] == [identifier, long]  # every item has Dublin Core
        answer = it.ask("GetRecord", identifier=identifier, metadataPrefix="meta")
        record = answer.find(f".//{OAI}record")
        assert record is not None
        assert [one.tag for one in record] == [f"{OAI}header", f"{OAI}metadata", f"{OAI}about"]
        assert record.find(".//{urn:example:meta}a/{urn:none}c") is None
        assert [one.text for one in record.iter(f"{OAI}setSpec")] == ["s", "col:1"]
        assert record.findtext(f".//{OAI}datestamp") != "2001-01-01"
        formats = [one.text for one in it.ask("ListMetadataFormats").iter(f"{OAI}metadataNamespace")]
        assert formats == [f"{OAI[1:-1]}oai_dc/", "urn:example:meta"]
        sets = [one.text for one in it.ask("ListSets").iter(f"{OAI}setSpec")]
        assert sets == ["s", "col", "col:1"]
        assert it.harvest("meta", set="col") == it.harvest("meta", set="col:1") == it.harvest("meta", set="s")
        take_harvested(feed, root, [], list(paths.values()), {})
        assert it.harvest("meta", set="col") == [(identifier, None), (long, None)]
        assert it.harvest() == [(identifier, None), (long, None)]
        assert it.error("ListMetadataFormats", identifier=identifier) == "noMetadataFormats"


def test_metadata_alone_are_records_again(tmp_path: Path) -> None:
    """Harvested with record = "metadata": the identifier is that of the file name, and sets are links."""
    root = tmp_path / "records"
    options = {"feed": "oai", "url": "http://127.0.0.1:9/", "prefixes": ("oai_dc", "m"), "resource_root": str(root)}
    with repository(tmp_path / "state", record="metadata", **options) as it:
        feed = it.source.push_sets.by_set["s"]
        collections = [
            Link(rel="collection", href="http://up.example/oai?verb=ListRecords&set=com_1"),
            Link(rel="collection", href="https://up.example/c/1"),
        ]
        dc = b'<oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/">t</oai_dc:dc>'
        wrapped = b'<o:metadata xmlns:o="http://www.openarchives.org/OAI/2.0/"><a>m</a></o:metadata>'
        name = file_name("oai:a/b?ä", ".xml")
        take_harvested(
            feed, root, [harvested(f"oai_dc/{name}", dc, *collections), harvested(f"m/{name}", wrapped)], [], {}
        )
        assert it.harvest() == [("oai:a/b?ä", "t")]
        assert it.harvest("m") == [("oai:a/b?ä", "m")]
        found = it.ask("GetRecord", identifier="oai:a/b?ä", metadataPrefix="m").find(f".//{OAI}metadata/a")
        assert found is not None  # without a namespace, as it was
        assert it.harvest(set="com_1") == it.harvest(set=set_of("https://up.example/c/1")[0]) == it.harvest()
        take_harvested(feed, root, [], [f"m/{name}"], {})
        assert it.harvest("m") == [("oai:a/b?ä", None)]
        assert it.harvest() == [("oai:a/b?ä", "t")]


HOSTILE = {
    "cut.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'><a>",
    "control.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'>\x01</mods>",
    "reference.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'>&#2;</mods>",
    "entity.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'>&nbsp;</mods>",
    "dtd.xml": b"<!DOCTYPE mods [<!ENTITY a 'b'>]><mods xmlns='http://www.loc.gov/mods/v3'>&a;</mods>",
    "two.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'/><mods/>",
    "after.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'/><br />Notice",
    "deep.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'>" + b"<a>" * 2_000 + b"</a>" * 2_000 + b"</mods>",
    "unbound.xml": b"<m:mods/>",
    "bytes.xml": b"<mods xmlns='http://www.loc.gov/mods/v3'>\xff</mods>",
    "empty.xml": b"",
}
READABLE = {
    "latin.xml": '<?xml version="1.0" encoding="ISO-8859-1"?>\n<mods xmlns="http://www.loc.gov/mods/v3">ä</mods>'.encode(
        "latin-1"
    ),
    "wide.xml": '<?xml version="1.0" encoding="UTF-16"?><mods xmlns="http://www.loc.gov/mods/v3">ä</mods>'.encode(
        "utf-16"
    ),
    "mark.xml": b'\xef\xbb\xbf<?xml version="1.1"?><!-- > --><mods xmlns="http://www.loc.gov/mods/v3">\xc3\xa4</mods>\n',
    "tag.xml": b'<m:mods a="/>" xmlns:m="http://www.loc.gov/mods/v3" b=\'<!-- "x" >\'>\xc3\xa4</m:mods>'.replace(
        b"<!", b"&lt;!"
    ),
    "style.xml": b'<?xml-stylesheet a?><mods xmlns="http://www.loc.gov/mods/v3"><![CDATA[\xc3\xa4]]></mods><?p i?>',
}


def test_every_answer_is_well_formed_whatever_the_files_are(tmp_path: Path) -> None:
    """What is no metadata in XML is not handed out as such: the item has Dublin Core, with a name that XML can hold."""
    names = {"a\x02b\udcff<&>.txt": b"x", "\uffff.txt": b"x"}
    files = put(tmp_path / "f", HOSTILE | READABLE | names)
    with repository(tmp_path / "state", files=str(files)) as it:
        found = {one.rpartition("/")[2]: text for one, text in it.harvest("mods")}
        assert found == dict.fromkeys(READABLE, "ä")
        assert len(it.harvest()) == len(HOSTILE | READABLE | names)
        title = it.ask("GetRecord", identifier=it.id("a%02b%FF%3C%26%3E.txt"), metadataPrefix="oai_dc")
        assert title.findtext(f".//{DC}title") == "a\ufffdb\ufffd<&>.txt"


def test_a_record_of_many_resources_is_the_item(tmp_path: Path) -> None:
    rule = DescribedRule(content="{stem}/*", record="{stem}/about.xml")
    files = put(tmp_path / "f", {"1/about.xml": MODS % b"one", "1/a.pdf": b"a", "1/b.pdf": b"b", "c.pdf": b"c"})
    with repository(tmp_path / "state", files=str(files), described=(rule,)) as it:
        assert it.harvest("mods") == [(it.id("1/about.xml"), "one")]
        assert [one for one, _text in it.harvest()] == [it.id("1/about.xml"), it.id("c.pdf")]


def test_items_of_dspace_are_dublin_core(tmp_path: Path) -> None:
    """The JSON of an item is its record; its files are no items."""
    root = tmp_path / "records"
    fields = {
        "dc.title": ["A & B"],
        "dc.contributor.author": ["Ada", "Bob"],
        "dc.date.issued": ["2020"],
        "dc.description.provenance": ["made by"],
        "dspace.entity.type": ["Publication"],
    }
    item = json.dumps(
        {"name": "A", "metadata": {key: [{"value": one} for one in some] for key, some in fields.items()}}
    )
    options = {"feed": "dspace", "url": "http://127.0.0.1:9/server/api", "resource_root": str(root)}
    with repository(tmp_path / "state", **options) as it:
        about = Link(rel="describedby", href=it.id("items/1.json"))
        own = Harvested(
            path="items/1.json", octets=item.encode(), metadata=metadata_of(item.encode(), "application/json")
        )
        some = [own, *(harvested(f"files/{one}/a.pdf", b"%PDF", about) for one in "12")]
        take_harvested(it.source.push_sets.by_set["s"], root, some, [], {})
        ((identifier, _text),) = it.harvest()
        assert identifier == it.id("items/1.json")
        found = it.ask("GetRecord", identifier=identifier, metadataPrefix="oai_dc")
        assert [(one.tag.removeprefix(DC), one.text) for one in found.iter() if one.tag.startswith(DC)] == [
            ("title", "A & B"),
            ("creator", "Ada"),
            ("creator", "Bob"),
            ("date", "2020"),
        ]
        take_harvested(it.source.push_sets.by_set["s"], root, [], ["items/1.json"], {})
        assert (identifier, None) in it.harvest()


def test_records_come_and_go_with_what_they_describe(tmp_path: Path) -> None:
    files = put(tmp_path / "f", {"a.pdf": b"a"})
    with repository(tmp_path / "state", files=str(files), described=(PAIR,)) as it:
        assert [one for one, _text in it.harvest()] == [it.id("a.pdf")]
        put(files, {"a.xml": MODS % b"A", "b.xml": MODS % b"B"})
        it.round()
        assert dict(it.harvest("mods")) == {it.id("a.pdf"): "A", it.id("b.xml"): "B"}
        put(files, {"a.xml": MODS % b"A2", "b.pdf": b"b"})
        it.round()
        assert dict(it.harvest("mods")) == {it.id("a.pdf"): "A2", it.id("b.xml"): None, it.id("b.pdf"): "B"}
        (files / "a.xml").unlink()
        (files / "b.pdf").unlink()
        it.round()
        assert dict(it.harvest("mods")) == {it.id("a.pdf"): None, it.id("b.xml"): "B", it.id("b.pdf"): None}
        assert {one for one, text in it.harvest() if text is not None} == {it.id("a.pdf"), it.id("b.xml")}


def test_two_formats_of_one_resource(tmp_path: Path) -> None:
    """A record in Dublin Core goes before the mapping; a prefix follows from an unknown namespace alone."""
    other = (DescribedRule(content="{stem}.pdf", record=f"{{stem}}.{suffix}") for suffix in ("dc", "one", "two"))
    dc = b'<dc xmlns="http://www.openarchives.org/OAI/2.0/oai_dc/">own</dc>'
    one, two = b'<q:r xmlns:q="urn:one#"/>', b'<q:r xmlns:q="urn:two#"/>'
    files = put(tmp_path / "f", {"a.pdf": b"a", "a.dc": dc, "a.one": one, "a.two": two})
    with repository(tmp_path / "state", files=str(files), described=tuple(other)) as it:
        assert it.harvest() == [(it.id("a.pdf"), "own")]
        formats = it.ask("ListMetadataFormats", identifier=it.id("a.pdf")).iter(f"{OAI}metadataPrefix")
        prefixes = [str(each.text) for each in formats]
        assert prefixes == ["oai_dc", "one-67e7facf", "two-36902937"]
        assert [len(it.harvest(one)) for one in prefixes] == [1, 1, 1]


def test_sets_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oai, "SETS", 4)
    with repository(tmp_path / "state", feed="events") as it:
        feed = it.source.push_sets.by_set["s"]
        links = [Link(rel="collection", href=f"https://c.example/{number}") for number in range(10)]
        announce(feed, *(upsert(it.id(f"{number}"), None, link) for number, link in enumerate(links)))
        pages = list(it.pages("ListSets"))
        assert [len(list(page.iter(f"{OAI}set"))) for page in pages] == [5, 4, 2]
        names = [one.text for page in pages for one in page.iter(f"{OAI}setName")]
        assert names == ["s", *(f"https://c.example/{number}" for number in range(10))]
        (found,) = it.harvest(set=set_of("https://c.example/7")[0])
        assert found[0] == it.id("7")


def test_a_set_below_the_whole_does_not_name_the_whole_twice(tmp_path: Path) -> None:
    with repository(tmp_path / "state", feed="events") as it:
        announce(it.source.push_sets.by_set["s"], upsert(it.id("a"), None, in_set("s:phd")))
        assert [one.text for one in it.ask("ListSets").iter(f"{OAI}setSpec")] == ["s", "s:phd"]
        assert list(it.dates(set="s")) == list(it.dates(set="s:phd")) == [it.id("a")]


def test_a_record_that_cannot_be_read_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays as it was, other records go on, and its new state comes as a change when it can be read."""
    monkeypatch.setattr(oai, "_FOLLOW_SECONDS", 0.1)
    files = put(tmp_path / "f", {"a.xml": MODS % b"A", "b.xml": MODS % b"B"})
    with repository(tmp_path / "state", files=str(files)) as it:
        assert len(it.harvest("mods")) == 2
        with monkeypatch.context() as patch:
            patch.setattr(type(it.source.contents), "open", lambda *_: NoContent(Absence.UNREADABLE))
            put(files, {"a.xml": MODS % b"A2", "c.txt": b"c"})
            it.round()
            assert it.harvest("mods") == [(it.id("a.xml"), "A"), (it.id("b.xml"), "B")]
            assert it.id("c.txt") in it.dates()
            time.sleep(1.0)
            asked = str(it.ask("Identify").findtext(f"{OAI}responseDate"))
        until(lambda: it.harvest("mods") == [(it.id("b.xml"), "B"), (it.id("a.xml"), "A2")])
        assert it.harvest("mods", from_=asked) == [(it.id("a.xml"), "A2")]


def test_a_record_that_can_be_read_again_is_missed_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by who asks while it is read."""
    monkeypatch.setattr(oai, "_FOLLOW_SECONDS", 0.1)
    files = put(tmp_path / "f", {"a.xml": MODS % b"A"})
    with repository(tmp_path / "state", files=str(files)) as it:
        assert len(it.harvest("mods")) == 1
        kind, real, dates = type(it.source.contents), type(it.source.contents).open, list[str]()

        def slow(*of: object) -> object:
            if not dates:
                time.sleep(1.1)
                dates.append(str(it.ask("Identify").findtext(f"{OAI}responseDate")))
            return real(*of)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(kind, "open", lambda *_: NoContent(Absence.UNREADABLE))
            put(files, {"a.xml": MODS % b"A2"})
            it.round()
            assert it.harvest("mods") == [(it.id("a.xml"), "A")]
            patch.setattr(kind, "open", slow)
            until(lambda: it.harvest("mods") == [(it.id("a.xml"), "A2")])
        assert it.harvest("mods", from_=dates[0]) == [(it.id("a.xml"), "A2")]


def test_who_waits_for_a_slow_file_keeps_nobody_else_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with repository(tmp_path / "state", files=str(put(tmp_path / "f", {"a.xml": MODS % b"A"}))) as it:
        it.harvest()
        goes_on, real = threading.Event(), oai_index.IndexedSet.record

        def slow(self: oai_index.IndexedSet, resource: Resource) -> object:
            goes_on.wait(30)
            return real(self, resource)

        monkeypatch.setattr(oai_index.IndexedSet, "record", slow)
        put(tmp_path / "f", {"b.xml": MODS % b"B"})
        it.round()
        waiting = [threading.Thread(target=it.send, args=("verb=Identify",)) for _ in range(6)]
        try:
            for one in waiting:
                one.start()
            time.sleep(0.5)
            assert request(it.url, "/").status == 200
            assert any(one.is_alive() for one in waiting)
        finally:
            goes_on.set()
            for one in waiting:
                one.join()


def test_a_bug_does_not_end_the_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once, and the set is looked at again."""
    monkeypatch.setattr(oai, "_FOLLOW_SECONDS", 0.01)
    calls, faults = list[None](), list[HeadwaterError]()

    def follow(_self: OaiIndex, _now: dt.datetime) -> bool:
        calls.append(None)
        raise KeyError("x")

    with repository(tmp_path / "state", files=str(put(tmp_path / "f", {"a.txt": b"a"}))) as it:
        monkeypatch.setattr(OaiIndex, "follow", follow)
        endpoint = OaiEndpoint(it.source.site, it.source.oai_indexes(), faults.append)
        until(lambda: len(calls) > 10)
        endpoint.close()
    assert [str(one) for one in faults] == ["KeyError: 'x' [HW-000]"]


def test_a_set_that_has_moved_here_answers(tmp_path: Path) -> None:
    """Its changes go on counting: none from before it was opened is in the log."""
    (tmp_path / "state").mkdir()
    with closing(SqliteCatalog(tmp_path / "state" / "catalog.sqlite")) as catalog:
        catalog.create("s", last_seq=7)
    with repository(tmp_path / "state", feed="events") as it:
        until(lambda: it.send("verb=Identify").status == 200)
        announce(it.source.push_sets.by_set["s"], upsert(it.id("a"), None))
        assert list(it.dates()) == [it.id("a")]


def test_a_file_of_a_harvested_set_is_no_item_when_it_is_gone(tmp_path: Path) -> None:
    root, path = tmp_path / "records", f"meta/{file_name('oai:example.org:1')}"
    options = {"feed": "oai", "url": "http://127.0.0.1:9/", "prefixes": ("meta",), "resource_root": str(root)}
    with repository(tmp_path / "state", **options) as it:
        some = [harvested(path, MODS % b"A"), harvested("files/x.pdf", b"%PDF")]
        take_harvested(it.source.push_sets.by_set["s"], root, some, [], {})
        assert it.harvest("meta") == [("oai:example.org:1", "A")]
        take_harvested(it.source.push_sets.by_set["s"], root, [], ["files/x.pdf", path], {})
        assert it.harvest("meta") == it.harvest() == [("oai:example.org:1", None)]
        assert it.error("ListRecords", metadataPrefix="files") == "cannotDisseminateFormat"
    for one in (tmp_path / "state" / "oai" / "s").iterdir():
        one.unlink()
    with repository(tmp_path / "state", **options) as it:
        assert it.harvest("meta") == it.harvest() == [("oai:example.org:1", None)]


def test_a_harvested_record_of_an_odd_header_gives_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes each token that it gives, and sets that can be none are encoded."""
    monkeypatch.setattr(oai, "RECORDS", 1)
    root, long = tmp_path / "records", "oai:example.org:" + "x" * 60_000
    options = {"feed": "oai", "url": "http://127.0.0.1:9/", "prefixes": ("me(ta)",), "resource_root": str(root)}
    with repository(tmp_path / "state", **options) as it:
        folder = file_name("me(ta)")
        some = [
            harvested(f"{folder}/{file_name(one)}", RECORD.format(id=one, text="a").encode(), in_set(spec))
            for one, spec in (("oai:1", "a:" * 50 + "a"), (long, "col:1"), ("oai:2", "col:1"))
        ]
        take_harvested(it.source.push_sets.by_set["s"], root, some, [], {})
        assert {one for one, _text in it.harvest("me(ta)")} == {"oai:1", "oai:2", it.id(quote(some[1].path))}
        found = it.ask("GetRecord", identifier="oai:1", metadataPrefix="me(ta)").iter(f"{OAI}setSpec")
        assert [is_spec(str(one.text)) for one in found] == [True, True]


def test_an_index_reads_what_may_be_a_record_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = DescribedRule(content="{stem}/*", record="{stem}/about.xml")
    files = {f"{number}/about.xml": MODS % b"one" for number in range(9)}
    put(tmp_path / "f", files | {"0/a.xml": MODS % b"a", "0/b.pdf": b"b", "c.pdf": b"c"})
    monkeypatch.setattr(oai_index, "_BATCH", 2)
    opened, real = [], FileContentReader.open

    def noted(self: FileContentReader, name: str, resource: Resource) -> object:
        opened.append(resource.uri)
        return real(self, name, resource)

    monkeypatch.setattr(FileContentReader, "open", noted)
    with repository(tmp_path / "state", files=str(tmp_path / "f"), described=(rule,)) as it:
        assert len(it.harvest("mods")) == 9
        assert set(opened) == set(files)


def test_what_is_excluded_is_not_handed_out(tmp_path: Path) -> None:
    """At once, before a scan has recorded that it is gone."""
    files = put(tmp_path / "f", {"a.txt": b"a", "secret.txt": b"s", "z.txt": b"z"})
    hidden = tmp_path / "hidden"
    hidden.write_text("# nothing\n")
    with repository(tmp_path / "state", files=str(files), exclude_file=str(hidden)) as it:
        assert it.id("secret.txt") in it.dates()
        hidden.write_text("secret*\n")
        settle()
        until(lambda: not it.source.takes("s", b"secret.txt"))
        assert list(it.dates()) == [it.id("a.txt"), it.id("z.txt")]
        assert it.error("GetRecord", identifier=it.id("secret.txt"), metadataPrefix="oai_dc") == "idDoesNotExist"
        assert it.error("GetRecord", identifier=it.id("secret.txt"), metadataPrefix="mods") == "idDoesNotExist"
        assert it.error("ListMetadataFormats", identifier=it.id("secret.txt")) == "idDoesNotExist"
        it.round()
        assert (it.id("secret.txt"), None) in it.harvest()
        assert it.error("ListMetadataFormats", identifier=it.id("secret.txt")) == "noMetadataFormats"


def test_a_record_of_an_excluded_item_is_not_handed_out(tmp_path: Path) -> None:
    files = put(tmp_path / "f", {"a.pdf": b"a", "a.xml": MODS % b"A", "b.xml": MODS % b"B"})
    hidden = tmp_path / "hidden"
    hidden.write_text("# nothing\n")
    with repository(tmp_path / "state", files=str(files), exclude_file=str(hidden), described=(PAIR,)) as it:
        assert len(it.harvest("mods")) == 2
        hidden.write_text("a.pdf\n")
        settle()
        until(lambda: not it.source.takes("s", b"a.pdf"))
        assert it.harvest("mods") == [(it.id("b.xml"), "B")]


def test_an_index_that_is_damaged_or_of_another_catalog_is_made_anew(tmp_path: Path) -> None:
    files = put(tmp_path / "f", {"a.txt": b"a"})
    state = tmp_path / "state"
    with repository(state, files=str(files)) as it:
        assert len(it.harvest()) == 1
    (path,) = (state / "oai" / "s").iterdir()
    path.write_bytes(b"no database" * 1_000)
    with repository(state, files=str(files)) as it:
        assert len(it.harvest()) == 1
    for path in state.glob("catalog.sqlite*"):
        path.unlink()
    put(files, {"b.txt": b"b"})
    with repository(state, files=str(files)) as it:
        assert [one for one, _text in it.harvest()] == [it.id("a.txt"), it.id("b.txt")]


def test_an_index_with_damage_in_its_middle_is_made_anew(tmp_path: Path) -> None:
    """The first answer may be 503; those after it are whole."""
    files, state = put(tmp_path / "f", {f"{number:03}.txt": b"x" for number in range(300)}), tmp_path / "state"
    with repository(state, files=str(files)) as it:
        before = states(it)
    (path,) = (state / "oai" / "s").iterdir()
    octets = bytearray(path.read_bytes())
    octets[4_096 * 10 :] = b"\xee" * (len(octets) - 4_096 * 10)
    path.write_bytes(octets)
    with repository(state, files=str(files)) as it:
        until(lambda: it.send("verb=ListRecords&metadataPrefix=oai_dc").status == 200)
        assert states(it) == before


def test_a_catalog_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = put(tmp_path / "f", {"a.txt": b"a"})
    with repository(tmp_path / "state", files=str(files)) as it:
        it.harvest()

        def away(_name: str) -> None:
            raise StoreFault("the cluster is away")

        monkeypatch.setattr(it.source.catalog, "state", away)
        answer = it.send("verb=Identify")
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[[set]]\nfiles = "f"\noai = true\n', "oai_admin"),
        ('[[set]]\nfiles = "f"\noai = true\noai_admin = "nobody"\n', "oai_admin"),
        (f'to = "t"\n[[set]]\nfiles = "f"\noai = true\noai_admin = "{ADMIN}"\n', "static tree"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text('state = "state"\nbase_url = "http://a.example"\n' + text)
    with pytest.raises(BadConfiguration, match=what):
        read_config(path)


def test_processes_answer_alike(tmp_path: Path) -> None:
    """The one that publishes, its workers, and one that only serves, with the same index."""
    put(tmp_path / "f", {f"{number:04}.txt": b"x" for number in range(1_200)})
    config = tmp_path / "c.toml"
    text = f'state = "state"\nport = 0\n[[set]]\nfiles = "f"\nname = "s"\noai = true\noai_admin = "{ADMIN}"\n'
    config.write_text(text)
    with Process(str(config), "--workers", "2") as first:
        url = first.ready()
        found = Repository.harvest(client := Repository(None, url))  # type: ignore[arg-type]
        assert len({one for one, _text in found}) == len(found) == 1_200
        config.write_text(f'base_url = "{url}"\n{text}')
        with Process(str(config), "--no-publish") as second:
            second.listening()
            other = Repository(None, second.address)  # type: ignore[arg-type]
            (tmp_path / "f" / "0000.txt").unlink()
            until(lambda: (client.id("0000.txt"), None) in client.harvest(), what="the deletion")
            assert other.harvest() == client.harvest()
            assert f" at {url}/, listening at {second.address}\n" in second.stop()[1]
        assert json.loads(request(url, "/health").body)["ready"]


def test_an_index_survives_kills(tmp_path: Path) -> None:
    """What was added when the server was killed is whole, and the next one goes on."""
    put(tmp_path / "f", {f"{number:04}.txt": b"x" for number in range(2_000)})
    config = tmp_path / "c.toml"
    admin = f'oai = true\noai_admin = "{ADMIN}"\n'
    config.write_text(f'state = "state"\nport = 0\n[[set]]\nfiles = "f"\nname = "s"\n{admin}')
    with Process(str(config)) as server:
        server.ready()
    for pause in (0.0, 0.05, 0.1, 0.2):
        for path in (tmp_path / "f").glob(f"{int(pause * 100):03}?.txt"):
            path.unlink()
        with Process(str(config)) as server:
            server.listening()
            time.sleep(pause)
            server.kill()
    with Process(str(config)) as server:
        it = Repository(None, server.ready())  # type: ignore[arg-type]
        until(lambda: it.send("verb=Identify").status == 200)
        until(lambda: sum(text is None for _one, text in it.harvest()) == 40, what="the deletions")
        assert len({one for one, _text in it.harvest()}) == 2_000


def rebuilt(state: Path) -> None:
    """Remove the index: the next server makes it of the catalog."""
    for path in (state / "oai" / "s").iterdir():
        path.unlink()


def test_a_format_that_is_met_later_has_the_deletions_from_before_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is met many batches after them."""
    monkeypatch.setattr(oai_index, "_BATCH", 2)
    files = put(tmp_path / "f", {f"{number}.txt": b"x" for number in range(5)} | {"a.xml": MODS % b"A"})
    with repository(tmp_path / "state", files=str(files)) as it:
        (files / "a.xml").unlink()
        it.round()
        for number in range(5):
            put(files, {f"{number}.txt": b"new"})
            it.round()
        put(files, {"e.xml": MODS % b"E"})
        it.round()
    rebuilt(tmp_path / "state")
    with repository(tmp_path / "state", files=str(files)) as it:
        assert it.harvest("mods") == [(it.id("a.xml"), None), (it.id("e.xml"), "E")]


def test_a_busy_set_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a set whose index lacks much is told to come again; another set answers."""
    monkeypatch.setattr(oai_index, "_AT_ONCE", 3)
    monkeypatch.setattr(oai, "_FOLLOW_SECONDS", 0.1)
    put(tmp_path / "s", {f"{number}.txt": b"x" for number in range(9)})
    put(tmp_path / "t", {"a.txt": b"a"})
    listener = listen("127.0.0.1", 0)
    url, ends, real = address_url(listener), threading.Event(), OaiIndex.follow
    monkeypatch.setattr(OaiIndex, "follow", lambda self, now: ends.is_set() and real(self, now))
    sets = tuple(SetConfig(name=name, oai=True, oai_admin=ADMIN, files=str(tmp_path / name)) for name in "st")
    with Source(SourceConfig(state=str(tmp_path / "state"), sets=sets, base_url=url)) as source:
        source.run_once()
        endpoint = OaiEndpoint(source.site, source.oai_indexes())
        try:
            with answering(Application(source, source.roots, routes=endpoint.routes()), listener):
                refused = request(url, "/s/oai?verb=Identify")
                assert refused.status == 503
                assert int(refused.headers["retry-after"]) > 0
                assert request(url, "/t/oai?verb=Identify").status == 200
                ends.set()
                until(lambda: request(url, "/s/oai?verb=Identify").status == 200)
                assert request(url, "/u/oai?verb=Identify").status == 404
        finally:
            endpoint.close()


def test_processes_of_different_settings_have_an_index_each(tmp_path: Path) -> None:
    """Neither empties that of the other; one that nobody uses for a day is removed."""
    files, state = put(tmp_path / "f", {"a.pdf": b"a", "a.xml": MODS % b"A"}), tmp_path / "state"
    with repository(state, files=str(files)) as it:
        assert it.harvest("mods") == [(it.id("a.xml"), "A")]
        (mine,) = (state / "oai" / "s").glob("*.sqlite")
        (index,) = it.source.oai_indexes().values()
        of = msgspec.structs.replace(index.of, prefixes=("meta",))
        other = OaiIndex(state / "oai" / "s", of)
        other.follow(dt.datetime.now(dt.UTC))
        assert it.harvest("mods") == [(it.id("a.xml"), "A")]
        assert len([*(state / "oai" / "s").glob("*.sqlite")]) == 2
        other.close()
        index.close()
    os.utime(mine, (0, 0))
    with repository(state, files=str(files), described=(PAIR,)) as it:
        it.harvest()
    assert mine not in (state / "oai" / "s").iterdir()


def test_rules_that_change_are_noticed(tmp_path: Path) -> None:
    files, state = put(tmp_path / "f", {"a.pdf": b"a", "a.xml": MODS % b"A"}), tmp_path / "state"
    with repository(state, files=str(files)) as it:
        assert it.harvest("mods") == [(it.id("a.xml"), "A")]
    with repository(state, files=str(files), described=(PAIR,)) as it:
        assert it.harvest("mods") == [(it.id("a.pdf"), "A")]
    with repository(state, files=str(files)) as it:
        assert it.harvest("mods") == [(it.id("a.xml"), "A")]


def test_a_token_whose_records_are_gone_ends_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the settings no longer take what would come; nor is there a token to nothing."""
    monkeypatch.setattr(oai, "RECORDS", 2)
    files = put(tmp_path / "f", {f"{number}.txt": b"x" for number in range(4)})
    hidden = tmp_path / "hidden"
    hidden.write_text("# nothing\n")
    with repository(tmp_path / "state", files=str(files), exclude_file=str(hidden)) as it:
        first = it.ask("ListRecords", metadataPrefix="oai_dc")
        hidden.write_text("2.txt\n3.txt\n")
        settle()
        until(lambda: not it.source.takes("s", b"2.txt"))
        last = it.ask("ListRecords", resumptionToken=str(first.findtext(f".//{OAI}resumptionToken")))
        assert last.find(f"{OAI}error") is None
        assert [one.text for one in last.iter(f"{OAI}resumptionToken")] == [None]
        assert len(list(it.pages("ListRecords", metadataPrefix="oai_dc"))) == 1


def test_records_come_and_go_with_a_record_of_many(tmp_path: Path) -> None:
    """When it is gone, what it described are items again, as in an index that is made anew."""
    rule = DescribedRule(content="{stem}/*", record="{stem}/about.xml")
    files = put(tmp_path / "f", {"1/about.xml": MODS % b"one", "1/a.pdf": b"a", "1/b.pdf": b"b"})
    with repository(tmp_path / "state", files=str(files), described=(rule,)) as it:
        assert [one for one, _text in it.harvest()] == [it.id("1/about.xml")]
        (files / "1/about.xml").unlink()
        it.round()
        found = {one: text is not None for one, text in it.harvest()}
        assert found == {it.id("1/about.xml"): False, it.id("1/a.pdf"): True, it.id("1/b.pdf"): True}


def test_an_older_catalog_makes_the_index_anew(tmp_path: Path) -> None:
    """One that was restored, and has another log since."""
    files, state = put(tmp_path / "f", {"a.txt": b"a"}), tmp_path / "state"
    with repository(state, files=str(files)) as it:
        it.harvest()
    kept = (state / "catalog.sqlite").read_bytes()
    put(files, {"b.txt": b"b"})
    with repository(state, files=str(files)) as it:
        assert len(it.harvest()) == 2
    for path in state.glob("catalog.sqlite*"):
        path.unlink()
    (state / "catalog.sqlite").write_bytes(kept)
    (files / "b.txt").unlink()
    with repository(state, files=str(files)) as it:
        assert [one for one, _text in it.harvest()] == [it.id("a.txt")]


@pytest.mark.parametrize("rule", [PAIR, DescribedRule(content="{stem}/*", record="{stem}/about.xml")])
def test_an_index_made_anew_lists_the_same_in_the_same_order(tmp_path: Path, rule: DescribedRule) -> None:
    """As one that has followed each change, whatever changes."""
    chance = random.Random(3)
    kinds = ("a.pdf", "b.txt", "a.xml", "about.xml")
    names = [f"{number}/{kind}" for number in "12" for kind in kinds]
    files = put(tmp_path / "f", {name: MODS % name.encode() for name in names[::2]})
    with repository(tmp_path / "state", files=str(files), described=(rule,), max_delete=1.0) as it:
        (followed,) = it.source.oai_indexes().values()
        for step in range(12):
            for name in chance.sample(names, 2):
                if (files / name).exists() and chance.random() < 0.4:
                    (files / name).unlink()
                else:
                    put(files, {name: MODS % f"{step} {name}".encode()})
            it.round()
            fresh = OaiIndex(tmp_path / f"fresh{step}", followed.of)
            assert living(fresh) == living(followed)
            fresh.close()
        followed.close()


def living(index: OaiIndex) -> list[ListedRecord]:
    """All records of an index that are not deleted, in their order."""
    whole = (ListPlace(prefix, "s", 1 << 62, 0) for prefix in ("oai_dc", "mods"))
    with index.snapshot(dt.datetime.now(dt.UTC)) as it:
        pages = [it.listed(one, 1_000, 1 << 30, headers_only=False)[0] for one in whole]
    return [one for page in pages for one in page if not one.is_deleted]
