"""A repository behind a sidecar that is killed again and again: every copy ends with the repository's truth.

The repository is a DSpace that answers OAI-PMH too. Its curators create, edit, withdraw and delete items and change
files, while the sidecar harvests both interfaces, and while `headwater sync`, oaipmh-scythe and Sickle follow the
sidecar. In the end they, `resync-sync` and `headwater audit` are asked. A long run has 1,000 changes and 25 kills.
"""

from __future__ import annotations

import datetime as dt
import random
import re
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from oaipmh_scythe import Scythe
from oaipmh_scythe.exceptions import NoRecordsMatch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sickle import Sickle, oaiexceptions

from tools.engines.launch import free_port

from tests.dspace.fake_dspace import Bitstream, Item
from tests.dspace.fake_oai import FakeDSpaceWithOai
from tests.dspace.test_moving_repository import told
from tests.interop.programs import headwater, resync, status_line
from tests.support.copying import go
from tests.support.examples import MANY
from tests.support.serving import Process
from tests.support.waiting import until

pytestmark = pytest.mark.long(20)
CHANGES, KILLS, ITEMS = (1_000, 25, 300) if MANY else (60, 4, 60)
TITLE = "{http://purl.org/dc/elements/1.1/}title"
EXAMPLE = Path(__file__).parents[2] / "packaging" / "oci" / "sidecar.toml"
SECONDS = "poll_seconds = 0.2\ncompare_seconds = 1.0\nmax_delete = 1.0\nrefresh_changes = 1"
DSPACE = """
[[set]]
name = "dspace"
feed = "dspace"
url = "{url}"
change_dump = true
oai = true
oai_admin = "repository@example.org"
"""


def configured(folder: Path, dspace: FakeDSpaceWithOai, port: int) -> Path:
    """The example of a sidecar, with addresses of its own, and a set for the other interface."""
    text = EXAMPLE.read_text()
    for theirs, ours in (
        ("/data/source", str(folder / "state")),
        ("https://copies.example.org", f"http://127.0.0.1:{port}"),
        ('host = "0.0.0.0"', f"port = {port}"),
        ("https://repository.example.org/oai/request", dspace.oai_url),
        ('poll_seconds = "1 hour"', SECONDS),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)
    path = folder / "sidecar.toml"
    path.write_text(text + DSPACE.format(url=dspace.url) + SECONDS)
    return path


class Curators:
    """People who change a repository: so many changes, of any kind, in a thread."""

    def __init__(self, dspace: FakeDSpaceWithOai, seed: int) -> None:
        self.dspace, self.chance = dspace, random.Random(seed)
        self.collections = [dspace.collection() for _ in range(3)]
        for _ in range(ITEMS):
            self.create()
        self.thread = threading.Thread(target=self._work)

    def create(self) -> None:
        files = [Bitstream(self.chance.randbytes(200)) for _ in range(self.chance.randrange(3))]
        self.dspace.add(self.chance.choice(self.collections), *files, title=f"Title {self.chance.random()}")

    def _work(self) -> None:
        for number in range(CHANGES):
            with self.dspace.lock:
                self._change(self.chance.choice(list(self.dspace.items.values())))
            if number % 20 == 0:
                time.sleep(1.0)  # nothing is waited for: things happen one after another

    def _change(self, item: Item) -> None:
        chance, files = self.chance, item.bundles["ORIGINAL"]
        match chance.randrange(10):
            case 0 | 1 | 2:
                self.create()
            case 3 | 4:
                self.dspace.edit(item, f"Title {chance.random()}")
            case 5:
                item.is_withdrawn = not item.is_withdrawn
                self.dspace.edit(item, item.title)
            case 6:
                self.dspace.delete(item)
            case 7 if files:
                files[0].content = chance.randbytes(200)  # the item does not tell
            case 8 if files:
                files[0].is_restricted = not files[0].is_restricted
            case _:
                files.append(Bitstream(chance.randbytes(300), name="added é.pdf"))


Records = dict[str, str | None]
"""Titles of records by their identifiers; None: deleted."""


def by_scythe(url: str, **since: str) -> Records:
    client: Any  # what it returns has several types
    with Scythe(url, max_retries=0) as client, suppress(NoRecordsMatch):
        named = {f"{name}_": text for name, text in since.items()}
        return {
            one.header.identifier: None if one.deleted else title(one.raw)
            for one in client.list_records(metadata_prefix="oai_dc", **named)
        }
    return {}


def by_sickle(url: str, **since: str) -> Records:
    with suppress(oaiexceptions.NoRecordsMatch):
        return {
            one.header.identifier: None if one.deleted else title(one.raw)
            for one in Sickle(url).ListRecords(metadataPrefix="oai_dc", **since)
        }
    return {}


def title(record: str) -> str:
    return str(next(ElementTree.fromstring(record).iter(TITLE)).text)


class Follower:
    """Does something again and again, also while the sidecar does not answer."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.ends, self.done = threading.Event(), 0
        self._work = work
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _follow(self) -> None:
        while not self.ends.is_set():
            with suppress(Exception):  # it is killed at any moment
                self._work()
                self.done += 1
            self.ends.wait(0.3)

    def close(self) -> None:
        self.ends.set()
        self.thread.join()


class Harvest:
    """What one client has of one set, by harvests that each begin when the one before did."""

    def __init__(self, client: Callable[..., Records], url: str) -> None:
        self.records: Records = {}
        self._client, self._url, self._since = client, url, dict[str, str]()

    def go(self) -> None:
        began = dt.datetime.now(dt.UTC)
        self.records |= self._client(self._url, **self._since)
        self._since = {"from": f"{began:%Y-%m-%dT%H:%M:%SZ}"}

    def live(self) -> dict[str, str]:
        return {name: text for name, text in self.records.items() if text is not None}


def records(copy: Path) -> dict[str, str]:
    """The titles of the records that a copy has, by their identifiers."""
    found = [path.read_text() for path in copy.rglob("*.xml") if "oai_dc" in path.parts]
    return {re.findall("<identifier>(.*?)</identifier>", text)[0]: title(text) for text in found}


def test_every_client_ends_with_the_truth_of_the_repository(tmp_path: Path) -> None:
    dspace = FakeDSpaceWithOai()
    curators = Curators(dspace, 1)
    port = free_port()
    url, config = f"http://127.0.0.1:{port}", configured(tmp_path, dspace, port)
    copy, theirs = tmp_path / "copy", tmp_path / "theirs"
    harvests = {
        (name, client.__name__): Harvest(client, f"{url}/{name}/oai")
        for name in ("records", "dspace")
        for client in (by_scythe, by_sickle)
    }
    followers = [Follower(lambda: go(url, copy, max_delete=1.0)), *(Follower(one.go) for one in harvests.values())]
    curators.thread.start()
    kills = 0
    try:
        while kills < KILLS or curators.thread.is_alive():
            with Process(str(config), "--quiet") as sidecar:
                sidecar.listening()
                time.sleep(curators.chance.uniform(0.1, 3.0))  # things happen meanwhile
                sidecar.kill()
            kills += 1
        curators.thread.join()
        for one in followers:
            one.close()
        with Process(str(config), "--quiet") as sidecar:
            sidecar.ready()

            def is_true() -> bool:
                headwater("sync", url, copy, "--quiet", "--max-delete", 1, status=None)
                return told(copy) == dspace.truth() and records(copy) == dspace.oai_truth()

            until(is_true, what="the truth", pause=0.5)
            headwater("audit", url, copy, "--quiet")
            for name in ("dspace", "records"):
                place = theirs / name
                place.mkdir(parents=True)
                lists = ("--capabilitylist", f"{url}/{name}/capabilitylist.xml")
                said = resync("resync-sync", "--baseline", "--delete", *lists, url, place)
                assert status_line(said).startswith("SYNCED"), said
                said = resync("resync-sync", "--audit", *lists, url, place)
                assert status_line(said).startswith("IN SYNC"), said
            assert told(theirs / "dspace") == dspace.truth()
            assert records(theirs / "records") == dspace.oai_truth()
            items = {f"{url}/dspace/resources/items/{one.uuid}.json": one for one in dspace.items.values()}
            truth = {
                "records": dspace.oai_truth(),
                "dspace": {name: one.title for name, one in items.items() if one.is_public},
            }
            for (name, client), harvest in harvests.items():
                harvest.go()
                assert harvest.live() == truth[name], (name, client)
        assert all(one.done for one in followers)
    finally:
        for one in followers:
            one.close()
        dspace.close()
