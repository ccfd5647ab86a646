"""A harvester of six providers at work, on a real engine: the log is what was done, and each resource is complete.

It writes with an unmodified client into one index of three shards, in the ways that harvesters have: the resource
before or after its change, dates of whole seconds or with a fraction, files that come back with their old modification
time, documents that come twice, what nobody can read. The server that follows is killed with -9 while it does.
HEADWATER_TRIAL_EVENTS makes it longer than the suite has time for.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from opensearchpy import OpenSearch
from tools.engines.engine import Engine

from headwater.catalog.interface import Change, Resource
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.catalog.verify import verify
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(30)

EVENTS = int(os.environ.get("HEADWATER_TRIAL_EVENTS", "120"))
PROVIDERS = ["Core", "DOAJ", "Elsevier", "Frontiers", "PLOS", "Springer"]
INDEX = "omtd-trial"
ROOT = "/srv/harvest"
STILL_SECONDS = 300
"""Without anything new: a look at the index that failed again and again is repeated after a minute."""
PAIR_SECONDS = 15
"""The harvester may stand still for a while between the two documents of a pair, as on a busy machine."""
MAPPING = {
    "settings": {"number_of_shards": 3, "number_of_replicas": 0, "refresh_interval": "1s"},
    "mappings": {"properties": {"resource_set": {"type": "keyword"}, "lastmod": {"type": "keyword"},
                                "datetime": {"type": "keyword"}}},
}  # fmt: skip


class Provider:
    """What one provider's harvester has done: the present documents, and every event in order."""

    def __init__(self, name: str, chance: random.Random, client: OpenSearch) -> None:
        self.name = name
        self.live: dict[str, dict[str, Any]] = {}
        self.last: dict[str, dict[str, Any]] = {}
        self.done: list[tuple[str, str]] = []
        self.loaded: dict[str, str] = {}
        """By URI, the digests of what was there when the set was loaded."""
        self._chance = chance
        self._client = client
        self._has_fractions = PROVIDERS.index(name) % 2 == 0
        self.moment = dt.datetime.now(dt.UTC) - dt.timedelta(days=2)

    def act(self, kinds: tuple[str, ...] = ("created", "created", "updated", "updated", "deleted", "replaced")) -> None:
        """Do something to a resource, and write what a harvester writes of it (DIT-02)."""
        kind = self._chance.choice(kinds)
        if kind == "created" or not self.live:
            gone = sorted(set(self.last) - set(self.live))
            path = (
                self._chance.choice(gone) if gone and self._chance.random() < 0.5 else f"{len(self.last)}/ü {kind}.pdf"
            )
            self._make("created", path)
            return
        path = self._chance.choice(sorted(self.live))
        if kind == "replaced":  # as quickly as can be
            self._remove(path)
            self._make("created", path)
        elif kind == "deleted":
            self._remove(path)
        else:
            self._make("updated", path)

    def _make(self, kind: str, path: str) -> None:
        now = self._now()
        lastmod = f"{now[:19]}+0000"
        if kind == "created" and path in self.last and self._chance.random() < 0.5:
            lastmod = self.last[path]["lastmod"]
        document = {
            "resource_set": self.name,
            "location": self._location(path),
            "length": self._chance.randrange(1 << 40),
            "md5": f"{self._chance.getrandbits(128):032x}",
            "mime": "application/pdf",
            "lastmod": lastmod,
            "ln": [{"rel": "described by", "href": {"value": f"{path}.xml", "type": "rel_path"}, "mime": "text/xml"}],
        }
        self.live[path] = self.last[path] = document
        self.done.append((kind, path))
        change = self._change(kind, path, now, lastmod)
        first, then = (True, False) if self._chance.random() < 0.5 else (False, True)
        for is_resource in (first, then):
            if is_resource:
                self._client.index(index=INDEX, id=f"{self.name} {path}", body=document)
            else:
                self._post(change)

    def _remove(self, path: str) -> None:
        document = self.live.pop(path)
        self.done.append(("deleted", path))
        self._client.delete(index=INDEX, id=f"{self.name} {path}")
        self._post(self._change("deleted", path, self._now(), document["lastmod"]))

    def _post(self, change: dict[str, Any]) -> None:
        for _ in range(self._chance.choice([1, 1, 1, 2])):  # it repeats itself
            self._client.index(index=INDEX, body=change)
        if self._chance.random() < 0.05:
            odd = self._chance.choice([{**change, "change": "moved"}, {**change, "location": {"value": "../up", "type":
                                      "rel_path"}}, {**change, "resource_set": "Nobody"}, {"odd": True}])  # fmt: skip
            self._client.index(index=INDEX, body=odd)

    def _change(self, kind: str, path: str, now: str, lastmod: str) -> dict[str, Any]:
        told = {"resource_set": self.name, "location": self._location(path), "change": kind, "datetime": now}
        return told | ({} if kind == "deleted" and self._chance.random() < 0.5 else {"lastmod": lastmod})

    def _location(self, path: str) -> dict[str, str]:
        if PROVIDERS.index(self.name) < 3:
            return {"value": path, "type": "rel_path"}
        return {"value": f"{ROOT}/{path}", "type": "abs_path"}

    def _now(self) -> str:
        """The time of an event; of one provider no two are of one second, or they have fractions."""
        if self._has_fractions:
            self.moment += dt.timedelta(milliseconds=self._chance.randrange(1, 700))
            return self.moment.strftime("%Y-%m-%dT%H:%M:%S.%f+0000")
        self.moment += dt.timedelta(seconds=self._chance.randrange(1, 3))
        return self.moment.strftime("%Y-%m-%dT%H:%M:%S+0000")


@pytest.fixture
def client(opensearch: Engine) -> Iterator[OpenSearch]:
    made = OpenSearch(opensearch.url)
    made.indices.delete(index=INDEX, ignore_unavailable=True)
    made.indices.create(index=INDEX, body=MAPPING)
    yield made
    made.indices.delete(index=INDEX)
    made.close()


def configured(folder: Path, url: str) -> Path:
    sets = "".join(
        f'[[set]]\nname = "{name.lower()}"\nfeed = "dit"\nindex = "{url}/{INDEX}"\npoll_seconds = 0.5\n'
        f'resource_sets = ["{name}"]\nresource_root = "{ROOT}"\nresource_base = "http://{name.lower()}.example/"\n'
        f"pair_seconds = {PAIR_SECONDS}\n"
        for name in PROVIDERS
    )
    config = folder / "c.toml"
    config.write_text(f'state = "state"\n{sets}')
    return config


def loaded(process: Process) -> None:
    """Wait until the snapshot of every provider was loaded."""
    url = process.listening()

    def is_ready() -> bool:
        sets = json.loads(request(url, "/health").body)["sets"]
        return len(sets) == len(PROVIDERS) and all(one["ready"] for one in sets)

    until(is_ready, 240, "all sets")


class Held:
    """What the server has recorded of a provider."""

    def __init__(self, state: Path) -> None:
        self.catalog = SqliteCatalog(state / "catalog.sqlite")

    def log(self, name: str) -> list[Change]:
        return list(self.catalog.changes(name.lower(), 0, 1_000_000))

    def resources(self, name: str) -> dict[str, Resource]:
        return {one.uri: one for one in self.catalog.resources(name.lower(), "", 1_000_000)}


def test_the_log_is_what_was_done_and_each_resource_is_complete(
    opensearch: Engine, client: OpenSearch, tmp_path: Path
) -> None:
    chance = random.Random(9)
    providers = [Provider(name, random.Random(name), client) for name in PROVIDERS]
    for provider in providers:
        for _ in range(5):
            provider.act(("created",))
        provider.done.clear()
        provider.loaded = {uri_of(path): f"md5:{one['md5']}" for path, one in provider.live.items()}
        provider.moment += dt.timedelta(minutes=1)
    client.indices.refresh(index=INDEX)
    config = str(configured(tmp_path, opensearch.url))
    with Process(config, "--port", "0", "--quiet") as process:
        loaded(process)
        for _ in range(EVENTS // 2):
            chance.choice(providers).act()
        time.sleep(chance.random())  # not a wait for anything: kills come at different moments
        process.kill()
    for _ in range(EVENTS // 2):
        chance.choice(providers).act()
    held = Held(tmp_path / "state")
    with Process(config, "--port", "0", "--quiet") as process:
        loaded(process)
        await_all(held, providers)
        assert process.stop()[0] == 0
    for provider in providers:
        compare(held, provider)
    held.catalog.close()


def uri_of(path: str) -> str:
    return path.replace("ü", "%C3%BC").replace(" ", "%20")


def await_all(held: Held, providers: list[Provider]) -> None:
    """Wait until the server has all changes and resources; fails when nothing has come for long."""
    shown, moved_at = {one.name: lacking(held, one) for one in providers}, time.monotonic()
    while any(shown.values()):
        assert time.monotonic() - moved_at < STILL_SECONDS, f"nothing came for {STILL_SECONDS} s, and it lacks {shown}"
        time.sleep(0.1)
        now = {one.name: lacking(held, one) for one in providers}
        if now != shown:
            shown, moved_at = now, time.monotonic()


def lacking(held: Held, provider: Provider) -> list[str]:
    """What the server does not have of a provider yet, and what it has that is gone."""
    had = Counter((one.uri, one.change.value) for one in held.log(provider.name))
    changes = Counter((uri_of(path), kind) for kind, path in provider.done) - had
    found = {(uri, one.metadata.hash) for uri, one in held.resources(provider.name).items()}
    live = {(uri_of(path), f"md5:{one['md5']}") for path, one in provider.live.items()}
    return sorted(
        [f"{kind} {uri} x{count}" for (uri, kind), count in changes.items()]
        + [f"resource {uri} {hash}" for uri, hash in live - found]
        + [f"no more {uri} {hash}" for uri, hash in found - live]
    )


def compare(held: Held, provider: Provider) -> None:
    log = held.log(provider.name)
    told = dict(by_uri((one.uri, one) for one in log))
    done = dict(by_uri((uri_of(path), kind) for kind, path in provider.done))
    found = {uri: without_corrections(ones, done.get(uri, []), provider.loaded.get(uri)) for uri, ones in told.items()}
    assert found == done
    resources = held.resources(provider.name)
    assert set(resources) == {uri_of(path) for path in provider.live}
    for path, document in provider.live.items():
        metadata = resources[uri_of(path)].metadata
        assert (metadata.hash, metadata.length) == (f"md5:{document['md5']}", document["length"])
        assert (metadata.type, [one.rel for one in metadata.links]) == ("application/pdf", ["describedby"])
        last = next((one for one in reversed(log) if one.uri == uri_of(path)), None)
        assert last is None or last.metadata == metadata, "who replays the log has the same"
    assert verify(held.catalog, provider.name.lower()) == []


def without_corrections(told: list[Change], done: list[str], loaded: str | None) -> list[str]:
    """What is told, without as many `updated` as are too many, by which a resource has corrected its change.

    Such a change came before its resource: it states no digest, or one of a state with the same `lastmod` that came
    before it, also of the load and also deleted since (DIT-A13).
    """
    left = list[str]()
    surplus = Counter(places_of_updates([one.change.value for one in told]))
    surplus.subtract(places_of_updates(done))
    for place, one in enumerate(told):
        stated = [None, loaded, *[other.metadata.hash for other in told[:place]]]
        run = sum(other.change.value != "updated" for other in told[:place])
        if one.change.value == "updated" and place > 0 and stated[-1] in stated[:-1] and surplus[run] > 0:
            surplus[run] -= 1
        else:
            left.append(one.change.value)
    return left


def places_of_updates(kinds: list[str]) -> list[int]:
    """For each `updated`, how many other changes come before it."""
    return [sum(other != "updated" for other in kinds[:place]) for place, kind in enumerate(kinds) if kind == "updated"]


def by_uri(pairs: Any) -> list[tuple[str, list[Any]]]:
    ordered = sorted(pairs, key=lambda one: one[0])
    return [(uri, [one for _, one in group]) for uri, group in groupby(ordered, key=lambda one: one[0])]
