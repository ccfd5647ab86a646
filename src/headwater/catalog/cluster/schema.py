"""The indices of a catalog on a search cluster: mappings, settings, versions.

Aliases `PREFIX-set`, `PREFIX-resource`, `PREFIX-change` and `PREFIX-state`, each onto one index of this version. Names
of fields are those of the DIT-ES protocol where it has them. Only what is searched, sorted or useful to an operator is
indexed; everything is in the document's source, exactly.
"""

import re
from typing import Any

import msgspec

from headwater.catalog.interface import ClusterOptions
from headwater.errors import StoreFault, UsageFault
from headwater.storage.cluster import Cluster, ClusterDamaged
from headwater.typed_decoding import from_json

VERSION = 1
SET, RESOURCE, CHANGE, STATE = "set", "resource", "change", "state"
KINDS = (SET, RESOURCE, CHANGE, STATE)
_FIRST = (SET, RESOURCE, CHANGE)  # those that every version had; the other is added where an older one has left none
_LOST = "Restore all indices of the prefix from one snapshot, or remove all of them to begin anew."
_LATER = ("extra",)  # fields that indices of this version may lack
_MOST_LINKS = 1_000_000
_ALREADY, _FORBIDDEN, _NOT_FOUND = 400, 403, 404

_KEYWORD = {"type": "keyword", "ignore_above": 8191}
_KEPT = {"type": "keyword", "index": False, "doc_values": False}
_NUMBER = {"type": "long"}
_KEPT_NUMBER = {"type": "long", "index": False, "doc_values": False}
_UNREAD = {"type": "object", "enabled": False}
_LOCATION = {"properties": {"value": _KEYWORD, "type": _KEPT}}
_METADATA: dict[str, Any] = {
    "length": _KEPT_NUMBER,
    "hash": _KEPT,
    "mime": _KEPT,
    "encoding": _KEPT,
    "changefreq": _KEPT,
    # A time may be of the year 1 or 9999, where nanoseconds do not reach; the source has it exactly.
    "lastmod": {"type": "date", "format": "strict_date_optional_time_nanos", "ignore_malformed": True},
    "ln": {"type": "nested", "dynamic": False, "properties": {"rel": _KEYWORD, "href": _LOCATION, "mime": _KEPT}},
    "extra": _UNREAD,
}
_MAPPINGS: dict[str, dict[str, Any]] = {
    SET: {"dynamic": False, "properties": {"resource_set": _KEYWORD, "rev": _NUMBER}},
    RESOURCE: {
        "dynamic": "strict",
        "properties": {
            "resource_set": _KEYWORD,
            "location": _LOCATION,
            "live": {"type": "boolean"},
            "page": _NUMBER,
            "slot": _NUMBER,
            "weight": _KEPT_NUMBER,
            "seq": _KEPT_NUMBER,
            "rev": _KEPT_NUMBER,
            "memo": {"type": "binary"},
            **_METADATA,
        },
    },
    STATE: {
        "dynamic": "strict",
        "properties": {
            "resource_set": _KEYWORD,
            "kind": _KEYWORD,
            "key": {"type": "keyword"},
            "rank": _NUMBER,
            "rev": _NUMBER,
            "value": {"type": "binary"},
        },
    },
    CHANGE: {
        "dynamic": "strict",
        "properties": {
            "resource_set": _KEYWORD,
            "location": {"properties": {"value": _KEPT, "type": _KEPT}},
            "change": _KEPT,
            "datetime": {"type": "date_nanos", "ignore_malformed": True},
            "seq": _NUMBER,
            "rev": _KEPT_NUMBER,
            "redo": _UNREAD,
            **_METADATA,
        },
    },
}


def index_body(prefix: str, kind: str, options: ClusterOptions) -> dict[str, Any]:
    """What an index is made with: it counts before all templates of others."""
    return {
        "settings": {
            "index.number_of_shards": options.shards if kind not in (SET, STATE) else 1,
            "index.number_of_replicas": options.replicas,
            # What must be seen is refreshed by name; this bounds only what is held in memory for it.
            "index.refresh_interval": "60s" if kind != STATE else "1s",
            # What a crash has left undone is done later, and must not bring back what was removed meanwhile.
            **({"index.gc_deletes": "1h"} if kind == STATE else {}),
            "index.mapping.nested_objects.limit": _MOST_LINKS,
            # Nothing that others have set for all indices may change our documents.
            "index.default_pipeline": "_none",
            "index.final_pipeline": "_none",
        },
        "mappings": {"_meta": {"headwater": {"schema": VERSION}}, **_MAPPINGS[kind]},
        "aliases": {f"{prefix}-{kind}": {"is_write_index": True}},
    }


def prepare(cluster: Cluster, prefix: str, options: ClusterOptions) -> None:
    """Make sure that the indices are there, creating what is missing. Raises StoreFault, UsageFault, ClusterFault."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", prefix):
        raise UsageFault(f"no prefix for indices: {prefix!a}", advice="Use lower-case letters, digits, - and _.")
    missing = _missing(cluster, prefix)
    _refuse_loss(cluster, prefix, missing)
    for kind in missing:
        path = f"/{prefix}-{kind}-v{VERSION}"
        body = msgspec.json.encode(index_body(prefix, kind, options))
        answer = cluster.ask("PUT", path, body, accept=(_ALREADY,))
        if answer.status == _ALREADY and "resource_already_exists_exception" not in answer.body:
            raise ClusterDamaged(answer.body[:1000], where=path)


def _refuse_loss(cluster: Cluster, prefix: str, missing: list[str]) -> None:
    """Raises ClusterDamaged where one of the first indices is gone, and another holds what belongs to it.

    A new one in its place would hide that, and what is left there would keep out what is written anew.
    """
    lost, left = ([kind for kind in _FIRST if (kind in missing) is is_lost] for is_lost in (True, False))
    if not lost:
        return
    for kind in left:
        name = f"{prefix}-{kind}-v{VERSION}"
        cluster.ask("POST", f"/{name}/_refresh")
        if not from_json(cluster.ask("GET", f"/{name}/_count").body, dict[str, Any])["count"]:
            continue
        gone = [one for one in _missing(cluster, prefix) if one in lost]  # another process may have made them just now
        if gone:
            what = f"the index is not there any more, and {name} holds what belongs to it"
            raise ClusterDamaged(what, where=f"{prefix}-{gone[0]}-v{VERSION}", advice=_LOST)


def is_prepared(cluster: Cluster, prefix: str) -> bool:
    """Whether there is anything of a catalog under this prefix. Raises StoreFault, ClusterFault."""
    return len(_missing(cluster, prefix)) < len(KINDS)


def remove(cluster: Cluster, prefix: str) -> None:
    """Remove everything of a catalog: for tests and benchmarks, which leave nothing behind."""
    for kind in KINDS:
        cluster.ask("DELETE", f"/{prefix}-{kind}-v{VERSION}", accept=(_NOT_FOUND,))


def _add_fields(cluster: Cluster, name: str, kind: str, known: dict[str, Any]) -> None:
    """Make known to an index of an older Headwater what came later; who may not do so does without."""
    wanted: dict[str, Any] = _MAPPINGS[kind]["properties"]
    later = {field: wanted[field] for field in _LATER if field in wanted and field not in known}
    if later:
        body = msgspec.json.encode({"properties": later})
        cluster.ask("PUT", f"/{name}/_mapping", body, accept=(_FORBIDDEN,))


def _missing(cluster: Cluster, prefix: str) -> list[str]:
    names = ",".join(f"{prefix}-{kind}-v*" for kind in KINDS)
    found = from_json(cluster.ask("GET", f"/{names}/_mapping").body, dict[str, Any])
    if not found:  # perhaps we may not see them: only who asks for one by its name is told so
        cluster.ask("GET", f"/{prefix}-{SET}-v{VERSION}/_mapping", accept=(_NOT_FOUND,))
    for name, index in found.items():
        mappings = index["mappings"]
        meta = mappings.get("_meta", {}).get("headwater")
        if meta is None:
            raise ClusterDamaged("the index was not made by Headwater", where=name)
        if meta["schema"] > VERSION:
            raise StoreFault(f"version {meta['schema']}, this program knows {VERSION}", code="HW-CAT-03", where=name)
        kind = next((kind for kind in KINDS if name == f"{prefix}-{kind}-v{VERSION}"), None)
        if kind is not None:
            _add_fields(cluster, name, kind, mappings.get("properties", {}))
    return [kind for kind in KINDS if f"{prefix}-{kind}-v{VERSION}" not in found]
