"""Reads the documents of an index that a harvester writes, shard by shard in the order of their operations.

Nothing is ever written to the index, not even a scroll or a point in time. Each page is one search after the last
number that was read (`search_after`'s principle on `_seq_no`), together with the gaps below it (`positions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from headwater.catalog.catalog_url import (
    NOBODY,
    BadPlace,
    ClusterPlace,
    Credentials,
    access_of,
    credentials_from,
    place_of,
)
from headwater.errors import SourceFault, UsageFault
from headwater.ingest.dit.documents import BadDocument
from headwater.ingest.dit.texts import Unwrapper, Wrapped, decoded
from headwater.progress import Listener, silent
from headwater.typed_decoding import from_json

if TYPE_CHECKING:
    from headwater.storage.cluster import Cluster

WINDOW: Final = 10_000  # gaps so far below the newest number, at most, are taken for operations under way
OVERLAP_SECONDS: Final = 120
"""How long a gap is asked for: far longer than an operation takes from its number to the next refresh."""


class ShardPosition(msgspec.Struct, array_like=True):
    """All numbers below `next` are dealt with, but for `gaps`: each with the second at which it was passed over."""

    next: int = 0
    gaps: dict[int, int] = msgspec.field(default_factory=dict)

    def is_new(self, number: int) -> bool:
        """Whether the operation has not been taken yet."""
        return number >= self.next or number in self.gaps

    def take(self, numbers: Iterable[int], second: int) -> None:
        """Note that these were taken; what they pass over are gaps, until they have been asked for long enough."""
        ordered = sorted(numbers)
        for number in ordered:
            if number < self.next:
                self.gaps.pop(number, None)
                continue
            self.gaps |= dict.fromkeys(range(max(self.next, ordered[-1] + 1 - WINDOW), number), second)
            self.next = number + 1
        known = ((gap, since) for gap, since in self.gaps.items() if second - since < OVERLAP_SECONDS)
        self.gaps = {gap: since for gap, since in known if gap >= self.next - WINDOW}


def read_position(octets: bytes | None) -> ShardPosition:
    """The position that was written down, as JSON; the beginning when none was."""
    return ShardPosition() if octets is None else from_json(octets, ShardPosition)


PAGE: Final = 1_000  # documents of one search, at most …
PAGE_OCTETS: Final = 16 << 20  # … and what its answer should not be much longer than
REFRESH_SECONDS: Final = 1.0  # how often a shard shows what is new, unless the index has an interval of its own

_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_NAME = re.compile(r"[^\\/*?\"<>| #A-Z:_+-][^\\/?\"<>| #A-Z:]{0,254}\Z")


class Shard(msgspec.Struct, frozen=True):
    """One shard of one index as it is now: an index that is made anew under the same name has another `uuid`."""

    index: str
    uuid: str
    number: int
    set_field: str | None = None
    """The field by which the engine knows a document's resource_set, where the mapping has one that it can search."""
    refresh_seconds: float = REFRESH_SECONDS
    """How often it shows what is new; 0 when somebody else has all shards do so at once."""

    @property
    def feed(self) -> str:
        """Under what name its position is kept."""
        return f"index {self.uuid}/{self.number}"


class Index:
    """The index, alias or list of indices `name` on a search server."""

    def __init__(self, server: Cluster, name: str) -> None:
        if not all(_NAME.match(one) for one in name.split(",")):
            raise UsageFault(f"not the name of an index: {name[:200]!a}", code="HW-ING-46")
        self._server = server
        self._name = name
        self._size = PAGE

    def shards(self) -> list[Shard]:
        """Every shard of every index behind the name. Raises UsageFault when there is none."""
        filters = (
            "filter_path=*.settings.index.uuid,*.settings.index.number_of_shards,*.settings.index.refresh_interval,"
            "*.mappings.properties.resource_set"
        )
        answer = self._server.ask("GET", f"/{quote(self._name, safe=',*')}?{filters}", accept=(404,))
        if answer.status == 404:
            raise UsageFault("there is no such index", code="HW-ING-46", where=self._name)
        found = []
        for index, told in sorted(_decoded(answer.body).items()):
            try:
                settings = told["settings"]["index"]
                count, uuid = int(settings["number_of_shards"]), str(settings["uuid"])
            except (KeyError, TypeError, ValueError) as cause:
                raise SourceFault(
                    "the settings of an index have neither uuid nor shards", code="HW-ING-47", where=index
                ) from cause
            field, pause = _set_field(told), _seconds(settings.get("refresh_interval"))
            found += [Shard(index, uuid, number, field, pause) for number in range(count)]
        if not found:
            raise UsageFault("there is no such index", code="HW-ING-46", where=self._name)
        return found

    def newest(self, shard: Shard) -> int:
        """The highest number of a document in the shard; -1 when it is empty."""
        body = {"query": {"match_all": {}}, "sort": _sorted("desc"), "size": 1, "_source": False}
        hits = self._search(shard, body)
        return max((one.number for one in hits), default=-1)

    def look(
        self,
        shard: Shard,
        position: ShardPosition,
        sets: frozenset[str] | None = None,
        until: int | None = None,
        most: int = PAGE,
    ) -> tuple[list[Wrapped], bool]:
        """The next documents that `position` does not know, up to the number `until`, in order; some gaps first.

        `most` of them at most, and whether there may be more. Those of other sets than `sets` are left out as far as
        the engine can tell; whoever takes them looks again.
        """
        size = min(self._size, most)
        after: dict[str, int] = {"gte": position.next} | ({"lte": until} if until is not None else {})
        wanted: list[dict[str, Any]] = [{"range": {"_seq_no": after}}]
        if position.gaps:
            wanted.append({"terms": {"_seq_no": sorted(position.gaps)}})
        others: list[dict[str, Any]] = []
        if shard.set_field is not None and sets is not None:  # what the field does not index may be ours
            named = [{"exists": {"field": shard.set_field}}]
            others = [{"bool": {"filter": named, "must_not": [{"terms": {shard.set_field: sorted(sets)}}]}}]
        query = {"filter": [{"bool": {"should": wanted}}], "must_not": others}
        body = {"query": {"bool": query}, "sort": _sorted("asc"), "size": size}
        hits = self._search(shard, body)
        return [one for one in hits if position.is_new(one.number)], len(hits) >= size

    def pages(
        self, shard: Shard, position: ShardPosition, until: int | None = None, sets: frozenset[str] | None = None
    ) -> Iterator[list[Wrapped]]:
        """Page after page to the end; whoever takes one moves the position before asking for the next."""
        while found := self.look(shard, position, sets, until)[0]:
            yield found

    def _search(self, shard: Shard, body: dict[str, Any]) -> list[Wrapped]:
        asked = {"seq_no_primary_term": True, "track_total_hits": False, **body}
        only = f"preference=_shards:{shard.number}&allow_partial_search_results=false"
        path = f"/{quote(shard.index, safe='')}/_search?{only}"
        text = self._server.ask("POST", path, msgspec.json.encode(asked)).body
        if "_source" not in body:
            self._size = fitting(body["size"], len(text))
        answer = _decoded(text)
        hits = answer.get("hits")
        if answer.get("timed_out") or not isinstance(hits, dict) or not isinstance(hits.get("hits"), list):
            raise SourceFault("the server answered only a part of a search", code="HW-ING-47")
        found = []
        for hit in hits["hits"]:
            if not isinstance(hit, dict) or not isinstance(number := hit.get("_seq_no"), int):
                raise SourceFault("a document lacks the number of its operation", code="HW-ING-47")
            one = Unwrapper().push(hit)[0] if "_source" in hit else Wrapped(None)
            found.append(msgspec.structs.replace(one, number=number))
        return found


def fitting(size: int, octets: int) -> int:
    """How many documents to ask for next, when so many came to so much: documents may be as large as they like."""
    return max(1, size * PAGE_OCTETS // octets) if octets > PAGE_OCTETS else min(PAGE, size * 2)


def _sorted(order: str) -> list[dict[str, Any]]:
    """By number; an index without mappings, because it has no document yet, does not even know its own fields."""
    return [{"_seq_no": {"order": order, "unmapped_type": "long"}}]


def _seconds(interval: object) -> float:
    """The `refresh_interval` of an index: 0 for one that does nothing of itself."""
    if interval is None:
        return REFRESH_SECONDS
    found = _INTERVAL.match(str(interval))
    return float(found[1]) * _UNITS[found[2]] if found else 0.0


def _set_field(told: dict[str, Any]) -> str | None:
    """The keyword field of resource_set in an index's mapping: itself, or the `.keyword` that engines make."""
    try:
        mapping = told["mappings"]["properties"]["resource_set"]
        fields = {"resource_set": mapping, "resource_set.keyword": mapping.get("fields", {}).get("keyword", {})}
        for name, one in fields.items():
            is_plain = str(one.get("index", "true")).lower() == "true" and "null_value" not in one
            if one.get("type") == "keyword" and is_plain:
                return name
    except (KeyError, TypeError, AttributeError):  # no mapping yet, or none of ours: everything is read
        pass
    return None


def _decoded(body: str) -> dict[str, Any]:
    try:
        value = decoded(body)
    except BadDocument as cause:
        raise SourceFault("an answer that is not JSON", code="HW-ING-47") from cause
    if not isinstance(value, dict):
        raise SourceFault("an answer that is no object", code="HW-ING-47")
    return value


_SCHEMES = ("http://", "https://")


def is_index(text: str) -> bool:
    """Whether the text names an index on a search server, and no file."""
    return text.startswith((*_SCHEMES, "opensearch://", "elasticsearch://"))


def index_credentials(environment: Mapping[str, str], texts: Iterable[str]) -> Credentials:
    """What HEADWATER_INDEX_USER, _PASSWORD and _API_KEY say, for the one server that the indexes are on.

    Raises UsageFault when several servers would be told: a secret is for one. An index whose address has a password of
    its own needs none.
    """
    found = credentials_from(environment, "INDEX")
    places = (_place_of(text)[0] for text in texts)
    servers = {place.nodes for place in places if place.credentials.password is None}
    if found != NOBODY and len(servers) > 1:
        what = "HEADWATER_INDEX_USER, _PASSWORD and _API_KEY fit one server, but the indexes are on several"
        advice = "Write user:password@ into the addresses of the indexes, in a file that only the source may read."
        raise UsageFault(what, code="HW-ING-46", advice=advice)
    return found


def index_at(
    text: str, listener: Listener = silent, credentials: Credentials = NOBODY, *, patience_seconds: float | None = None
) -> Index:
    """The index at `http(s)://[user:password@]host:port/index`, or at the same in a catalog's form. Raises UsageFault.

    A password in the URL counts before `credentials`.
    """
    found, path = _place_of(text)
    if found.credentials.password is not None:
        credentials = NOBODY
    from headwater.storage.cluster import Cluster  # and with it the client library, which only this needs

    seconds = found.options.patience_seconds if patience_seconds is None else patience_seconds
    return Index(Cluster(access_of(found, credentials), patience_seconds=seconds, listener=listener), path)


def _place_of(text: str) -> tuple[ClusterPlace, str]:
    place = f"opensearch://{text.partition('://')[2]}" if text.startswith(_SCHEMES) else text
    if text.startswith("https://"):
        place += "&tls=true" if "?" in place else "?tls=true"
    try:
        found = place_of(place)
    except BadPlace as cause:
        raise UsageFault(f"not an index: {cause.what}", code="HW-ING-46", where=cause.where) from cause
    path = place.partition("://")[2].partition("?")[0].partition("/")[2].strip("/")
    if not isinstance(found, ClusterPlace) or not path:
        raise UsageFault("the address names no index", code="HW-ING-46")
    return found, path
