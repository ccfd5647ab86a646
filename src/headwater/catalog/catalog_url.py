"""Catalog URLs: the text that names a catalog, shown without passwords, becomes an open backend: a file or a cluster.

catalog.sqlite   sqlite:/srv/catalog.sqlite
opensearch://search1:9200,search2:9200/prefix?shards=3&replicas=1
elasticsearch://user@search.example.org/prefix?tls=true&ca=/etc/ssl/search.pem
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

import msgspec

from headwater.catalog.interface import DEFAULT_OPTIONS, Catalog, ClusterOptions, Limits
from headwater.errors import UsageFault
from headwater.progress import Listener, Notice, silent
from headwater.typed_decoding import from_values

if TYPE_CHECKING:
    from headwater.storage.cluster import Access

DEFAULT_PORT = 9200
DEFAULT_PREFIX = "headwater"
_SQLITE = "sqlite:"
_URL = re.compile(
    r"(?P<engine>opensearch|elasticsearch)://(?:(?P<who>[^@/?#]*)@)?(?P<nodes>[^@/?#]+)"
    r"(?:/(?P<prefix>[^@/?#]*))?/?(?:\?(?P<query>[^@#]*))?"
)
_PREFIX = re.compile(r"[^\\/*?\"<>| #A-Z:,_+.-][^\\/*?\"<>| #A-Z:,]{0,200}")
"""What an engine takes for the beginning of the name of an index; a pattern would have others as well."""
_CA = re.compile(r"(?<=[?&])(ca=)([^&]+)")
_NODE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(?::(?P<port>[0-9]{1,5}))?")


class BadPlace(UsageFault):
    """The name is not that of a catalog."""

    code = "HW-CAT-09"


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What better stands in the environment than in a URL; it counts before what the URL says, an API key before all.

    No secret is in what `repr` tells.
    """

    user: str | None = None
    password: str | None = None
    api_key: str | None = None

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, …)"


class ClusterPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The indices of one prefix in a cluster, and how to get there."""

    nodes: tuple[tuple[str, int], ...]
    prefix: str = DEFAULT_PREFIX
    credentials: Credentials = Credentials()
    options: ClusterOptions = DEFAULT_OPTIONS


def credentials_from(environment: Mapping[str, str], server: str = "CLUSTER") -> Credentials:
    """What HEADWATER_CLUSTER_USER, HEADWATER_CLUSTER_PASSWORD and HEADWATER_CLUSTER_API_KEY say, or those of another
    `server`: what is meant for one is never sent to the other.
    """
    names = "user", "password", "api_key"
    return Credentials(**{one: environment.get(f"HEADWATER_{server}_{one.upper()}") or None for one in names})


_ENCODE = "Write the signs of a password in a URL as %XX (@ is %40, / is %2F), or give it by the environment."
Place = Path | ClusterPlace
NOBODY = Credentials()


def is_cluster(text: str) -> bool:
    """Whether the text names a cluster, and no file."""
    return "://" in text


def shown(text: str) -> str:
    """The place as it may be told: without a password, also where its signs are not encoded as they must be."""
    match = _URL.fullmatch(text)
    if match is None:
        return re.sub(r"(://[^:@/?#]*)[:/?#].*@", r"\1@", text, flags=re.DOTALL)
    start, end = match.span("who")
    return text if match["who"] is None else text[:start] + match["who"].partition(":")[0] + text[end:]


def place_of(text: str) -> Place:
    """What the text means. Raises BadPlace."""
    if not is_cluster(text):
        return Path(text.removeprefix(_SQLITE))
    match = _URL.fullmatch(text)
    if match is None:
        raise BadPlace("no place of a catalog", where=shown(text), advice=_ENCODE if "@" in text else None)
    if match["prefix"] and _PREFIX.fullmatch(match["prefix"]) is None:
        raise BadPlace("the prefix of the indices begins no name of an index", where=shown(text))
    user, _, password = (match["who"] or "").partition(":")
    nodes = []
    for node in match["nodes"].split(","):
        found = _NODE.fullmatch(node)
        port = int(found["port"] or DEFAULT_PORT) if found else 0
        if found is None or not 0 < port < 1 << 16:
            raise BadPlace(f"no node: {node!a}", where=shown(text))
        nodes.append((found["host"].strip("[]"), port))
    query = match["query"] or ""
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        options = from_values(given, ClusterOptions, strict=False)
    except ValueError as cause:  # msgspec's ValidationError is one
        raise BadPlace(f"after the question mark: {cause}", where=shown(text)) from cause
    return ClusterPlace(
        nodes=tuple(nodes),
        prefix=match["prefix"] or DEFAULT_PREFIX,
        credentials=Credentials(user=unquote(user) or None, password=unquote(password) or None),
        options=options,
    )


def anchored(text: str, folder: Path) -> str:
    """The text with what is relative in it counted from `folder`: a file's path, or the `ca` file of a URL."""
    if not is_cluster(text):
        return str(folder / os.path.expanduser(text.removeprefix(_SQLITE)))

    def whole(match: re.Match[str]) -> str:
        return match[1] + quote(str(folder / os.path.expanduser(unquote_plus(match[2]))), safe="/")

    return _CA.sub(whole, text)


def with_patience(place: str, seconds: float) -> str:
    """The URL of a cluster that is waited for so long when it is away; what the URL says of that itself counts."""
    if "patience_seconds=" in place:
        return place
    return f"{place}{'&' if '?' in place else '?'}patience_seconds={seconds:g}"


def open_catalog(
    place: str | Path, limits: Limits | None = None, *, credentials: Credentials = NOBODY, listener: Listener = silent
) -> Catalog:
    """The catalog at that place, made when it is not there, and migrated when it is older: the listener hears of that.

    Raises BadPlace, StoreFault and faults of the store.
    """
    found = place_of(place) if isinstance(place, str) else place
    if isinstance(found, ClusterPlace):
        from headwater.catalog.cluster.catalog import ClusterCatalog

        access = access_of(found, credentials)
        return ClusterCatalog(access, found.prefix, limits, options=found.options, listener=listener)
    from headwater.catalog.sqlite_catalog import SqliteCatalog

    catalog = SqliteCatalog(found, limits)
    if catalog.migrated_from is not None:
        text = (
            f"the catalog was of schema version {catalog.migrated_from} and is migrated; older versions refuse it now"
        )
        listener(Notice("HW-CAT-11", text, str(found)))
    return catalog


def is_there(place: str | Path, *, credentials: Credentials = NOBODY, listener: Listener = silent) -> bool:
    """Whether there is a catalog at that place; nothing is made. Raises BadPlace, StoreFault, faults of the store."""
    found = place_of(place) if isinstance(place, str) else place
    if not isinstance(found, ClusterPlace):
        return found.is_file()
    from headwater.catalog.cluster.schema import is_prepared
    from headwater.storage.cluster import Cluster

    patience = found.options.patience_seconds
    cluster = Cluster(access_of(found, credentials), patience_seconds=patience, listener=listener)
    try:
        return is_prepared(cluster, found.prefix)
    finally:
        cluster.close()


def access_of(place: ClusterPlace, credentials: Credentials = NOBODY) -> Access:
    """The way to the cluster; the credentials that are given count before those of the URL."""
    from headwater.storage.cluster import Access, Node

    return Access(
        nodes=tuple(Node(host, port) for host, port in place.nodes),
        tls=place.options.tls,
        ca=place.options.ca,
        user=credentials.user or place.credentials.user,
        password=credentials.password or place.credentials.password or "",
        api_key=credentials.api_key,
    )
