"""How hubs and topics are asked: by which proxy, with whose credentials, and which authorities are believed.

As the sources of the copies are asked, by the same options (decision 069).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headwater.notify.http_client import OriginCredentials, check_authorities
from headwater.notify.http_proxy import HttpProxy, read_proxy
from headwater.spec import uris
from headwater.sync.connection import credentials_of, proxy_for
from headwater.sync.run import SyncTask


class HubAccess(msgspec.Struct, frozen=True):
    """Authorities to trust besides, the proxy by scheme and host, and credentials by origin."""

    authorities: str | None
    proxy_for: Callable[[str, str], HttpProxy | None]
    credentials: dict[uris.Origin, OriginCredentials]


def hub_access(tasks: Sequence[SyncTask]) -> HubAccess:
    """What the options of these copies come to. Raises UsageFault, also for a proxy that cannot be used."""
    options = tasks[0].options

    def proxy(scheme: str, host: str) -> HttpProxy | None:
        named = proxy_for(scheme, host, options.proxy)
        return None if named is None else read_proxy(named)

    for scheme in ("http", "https"):
        proxy(scheme, "hub.invalid")  # one that cannot be used is told at the start, not at each request
    check_authorities(options.ca)
    return HubAccess(options.ca, proxy, _credentials(tasks))


def _credentials(tasks: Sequence[SyncTask]) -> dict[uris.Origin, OriginCredentials]:
    """The credentials of each copy's source, for its origin; of several copies of one origin those of the first."""
    found: dict[uris.Origin, OriginCredentials] = {}
    for task in tasks:
        known = credentials_of(task.url, task.options)
        if known is not None:
            head = b"".join(line + b"\r\n" for line in known.lines(set()))
            own = OriginCredentials(head, known.certificate, known.key)
            found.setdefault(uris.origin(known.origin), own)
    return found
