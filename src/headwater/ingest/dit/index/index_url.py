"""Where a harvester's index is: one text that a command or a configuration is given becomes an index to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.catalog.catalog_url import (
    NOBODY,
    BadPlace,
    ClusterPlace,
    Credentials,
    access_of,
    credentials_from,
    place_of,
)
from headwater.ingest.dit.index.shard_reader import BadIndex, Index
from headwater.progress import Listener, silent

_SCHEMES = {"http://": "opensearch://", "https://": "opensearch://"}


def is_index(text: str) -> bool:
    """Whether the text names an index on a search server, and no file."""
    return text.startswith((*_SCHEMES, "opensearch://", "elasticsearch://"))


def index_credentials(environment: Mapping[str, str], texts: Iterable[str]) -> Credentials:
    """What HEADWATER_INDEX_USER, _PASSWORD and _API_KEY say, for the one server that the indexes are on.

    Raises BadIndex when several servers would be told: a secret is for one. An index whose address has a password of
    its own needs none.
    """
    found = credentials_from(environment, "INDEX")
    places = (_place_of(text)[0] for text in texts)
    servers = {place.nodes for place in places if place.credentials.password is None}
    if found != NOBODY and len(servers) > 1:
        raise BadIndex(
            "HEADWATER_INDEX_USER, _PASSWORD and _API_KEY are for one server, and the indexes are on several",
            advice="Write user:password@ into the addresses of the indexes, in a file that only the source may read.",
        )
    return found


def index_at(
    text: str,
    listener: Listener = silent,
    credentials: Credentials = NOBODY,
    *,
    patience_seconds: float | None = None,
) -> Index:
    """The index at `http(s)://[user:password@]host:port/index`, or at the same in a catalog's form. Raises BadIndex.

    A password in the URL counts before `credentials`.
    """
    found, path = _place_of(text)
    if found.credentials.password is not None:
        credentials = NOBODY
    from headwater.storage.cluster import Cluster  # and with it the client library, which only this needs

    seconds = found.options.patience_seconds if patience_seconds is None else patience_seconds
    return Index(Cluster(access_of(found, credentials), patience_seconds=seconds, listener=listener), path)


def _place_of(text: str) -> tuple[ClusterPlace, str]:
    """The server, and the name of the index there. Raises BadIndex."""
    place = text
    for scheme, own in _SCHEMES.items():
        place = own + place.removeprefix(scheme) if place.startswith(scheme) else place
    if text.startswith("https://"):
        place += "&tls=true" if "?" in place else "?tls=true"
    try:
        found = place_of(place)
    except BadPlace as cause:
        raise BadIndex(f"not an index: {cause.what}", where=cause.where) from cause
    path = place.partition("://")[2].partition("?")[0].partition("/")[2].strip("/")
    if not isinstance(found, ClusterPlace) or not path:
        raise BadIndex("the address names no index")
    return found, path
