"""Public clients of OAI-PMH harvest a set of ours that changes meanwhile: each record comes in its last state."""

from __future__ import annotations

import datetime as dt
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oaipmh_scythe import Scythe
from oaipmh_scythe.exceptions import NoRecordsMatch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sickle import Sickle

from headwater.http import oai
from headwater.ingest.harvested import file_name, take_harvested
from tests.http.test_oai import MODS, RECORD, harvested, put, repository

Found = dict[str, tuple[bool, str]]
"""Whether a record is deleted, and its last text, by identifiers."""


def by_sickle(url: str, **asked: str) -> Found:
    found: Found = {}
    for one in Sickle(url).ListRecords(metadataPrefix="meta", **asked):
        found[one.header.identifier] = one.deleted, "" if one.deleted else one.raw
    return found


def by_scythe(url: str, **asked: str) -> Found:
    found: Found = {}
    named = {"from_" if name == "from" else name: text for name, text in asked.items()}
    client: Any  # what it returns has several types
    with Scythe(url) as client:
        try:
            for one in client.list_records(metadata_prefix="meta", **named):
                deleted = bool(one.deleted)
                found[one.header.identifier] = deleted, "" if deleted else one.raw
        except NoRecordsMatch:
            pass
    return found


@pytest.mark.parametrize("harvest", [by_sickle, by_scythe])
def test_a_client_has_the_last_state_of_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harvest: Callable[..., Found]
) -> None:
    monkeypatch.setattr(oai, "RECORDS", 20)
    root, count = tmp_path / "records", 300
    options = {"feed": "oai", "url": "http://127.0.0.1:9/", "prefixes": ("meta",), "resource_root": str(root)}
    with repository(tmp_path / "state", **options) as it:
        feed, ids = it.source.push_sets.by_set["s"], [f"oai:example.org:{n}" for n in range(count)]
        paths = {one: f"meta/{file_name(one)}" for one in ids}

        def write(some: list[str], text: str) -> None:
            records = [harvested(paths[one], RECORD.format(id=one, text=text).encode()) for one in some]
            take_harvested(feed, root, records, [], {})

        write(ids, "old")
        began = dt.datetime.now(dt.UTC)

        def change() -> None:
            for start in range(0, count, 30):
                write(ids[start : start + 10], "new")
                take_harvested(feed, root, [], [paths[one] for one in ids[start + 10 : start + 13]], {})

        changing = threading.Thread(target=change)
        changing.start()
        found = harvest(f"{it.url}/s/oai")
        changing.join()
        assert found.keys() == set(ids)
        found |= harvest(f"{it.url}/s/oai", **{"from": f"{began:%Y-%m-%dT%H:%M:%SZ}"})
        check(found, ids)


def check(found: Found, ids: list[str]) -> None:
    for number, one in enumerate(ids):
        deleted, text = found[one]
        assert deleted == (10 <= number % 30 < 13)
        assert deleted or f"{'new' if number % 30 < 10 else 'old'}</m:a>" in text


def test_clients_read_the_other_verbs(tmp_path: Path) -> None:
    """What a source says of itself, its sets and its formats."""
    files = put(tmp_path / "f", {"a.xml": MODS % b"A", "b.txt": b"b"})
    with repository(tmp_path / "state", files=str(files)) as it:
        url = f"{it.url}/s/oai"
        client: Any
        sickle = Sickle(url)
        assert sickle.Identify().deletedRecord == "persistent"
        assert [one.setSpec for one in sickle.ListSets()] == ["s"]
        assert [one.metadataPrefix for one in sickle.ListMetadataFormats()] == ["oai_dc", "mods"]
        with Scythe(url) as client:
            assert [one.metadataPrefix for one in client.list_metadata_formats()] == ["oai_dc", "mods"]
            one = client.get_record(identifier=it.id("b.txt"), metadata_prefix="oai_dc")
            assert one.header.identifier == it.id("b.txt")
