"""The addresses, times and links of Memento, as values (RFC 7089): no catalog, no store.

A memento lies at `/S/memento/TIME/PATH`: the time of the change in 20 digits, to the microsecond, which the catalog
gives to no other change of the set. Its TimeGate is `/S/timegate/PATH`, its TimeMap `/S/timemap/PATH`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from email.utils import format_datetime

import msgspec

from headwater.publish.site import Site
from headwater.spec.times import SECOND, from_microseconds, to_microseconds
from headwater.versions.history import PastState, time_text

LINK_FORMAT = "application/link-format"
PAGE_STATES = 1_000
"""So many mementos one page of a TimeMap has at most."""

_DATE = re.compile(rb"\s*[A-Za-z]{3}, ([0-9]{2}) ([A-Za-z]{3}) ([0-9]{4}) ([0-9]{2}):([0-9]{2}):([0-9]{2}) GMT\s*\Z")
_MONTHS = (b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec")
_TIME = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{6})\Z")


def wanted_second(accept_datetime: bytes) -> int | None:
    """The last microsecond of the second that `Accept-Datetime` names (RFC 7089 2.1.1.1); None: it is no such date."""
    found = _DATE.match(accept_datetime) if len(accept_datetime) < 64 else None
    if found is None or found[2].lower() not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(found[number]) for number in (1, 3, 4, 5, 6))
    try:
        moment = dt.datetime(year, _MONTHS.index(found[2].lower()) + 1, day, hour, minute, second, tzinfo=dt.UTC)
    except ValueError:
        return None
    return to_microseconds(moment) + SECOND - 1


def time_from(text: str) -> int | None:
    """The time of a memento's address; None: it is none."""
    found = _TIME.match(text) if text.isascii() else None
    if found is None:
        return None
    try:
        year, month, day, hour, minute, second, microsecond = map(int, found.groups())
        return to_microseconds(dt.datetime(year, month, day, hour, minute, second, microsecond, tzinfo=dt.UTC))
    except ValueError:
        return None


def http_date(at_us: int) -> str:
    """A time as HTTP writes it, to the second."""
    return format_datetime(from_microseconds(at_us).replace(microsecond=0), usegmt=True)


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of one resource: `relative` is its URI below the set's folder."""

    original: str
    base: str
    relative: str

    @property
    def timegate(self) -> str:
        """Its TimeGate."""
        return f"{self.base}/timegate/{self.relative}"

    @property
    def timemap(self) -> str:
        """Its TimeMap."""
        return f"{self.base}/timemap/{self.relative}"

    def memento(self, at_us: int) -> str:
        """Its state that began at this time."""
        return f"{self.base}/memento/{time_text(at_us)}/{self.relative}"


def addresses_of(site: Site, set_name: str, relative: str) -> Addresses:
    """Where the states of a resource are."""
    return Addresses(site.resource_prefix(set_name) + relative, site.url(set_name), relative)


def header_links(of: Addresses) -> str:
    """What a resource says of its past in `Link` (RFC 7089 2.2)."""
    return f'<{of.timegate}>; rel="timegate", <{of.timemap}>; rel="timemap"; type="{LINK_FORMAT}"'


def response_links(of: Addresses, mementos: Iterable[tuple[str, PastState]] = ()) -> bytes:
    """What a memento or a TimeGate says in `Link`: the original, TimeGate and TimeMap, and mementos by relation."""
    relations: dict[int, list[str]] = {}
    for relation, state in mementos:
        relations.setdefault(state.at_us, []).append(relation)
    links = [f'<{of.original}>; rel="original"', header_links(of)]
    for at_us, names in relations.items():
        relation = " ".join(dict.fromkeys([*names, "memento"]))
        links.append(f'<{of.memento(at_us)}>; rel="{relation}"; datetime="{http_date(at_us)}"')
    return ", ".join(links).encode("ascii")


def timemap(
    of: Addresses, states: Sequence[PastState], first: PastState, last: PastState, following: int | None
) -> bytes:
    """One page of a TimeMap (RFC 7089 5): mementos in the order of their times; `following` begins the next page."""
    own = of.timemap if states[0].at_us == first.at_us else f"{of.timemap}?from={time_text(states[0].at_us)}"
    span = f'from="{http_date(states[0].at_us)}"; until="{http_date(states[-1].at_us)}"'
    lines = [
        f'<{of.original}>; rel="original"',
        f'<{own}>; rel="self"; type="{LINK_FORMAT}"; {span}',
        f'<{of.timegate}>; rel="timegate"',
    ]
    if following is not None:
        href = f"{of.timemap}?from={time_text(following)}"
        lines.append(f'<{href}>; rel="timemap"; type="{LINK_FORMAT}"; from="{http_date(following)}"')
    for state in states:
        relation = ("first " if state.at_us == first.at_us else "") + ("last " if state.at_us == last.at_us else "")
        lines.append(f'<{of.memento(state.at_us)}>; rel="{relation}memento"; datetime="{http_date(state.at_us)}"')
    return (",\n".join(lines) + "\n").encode("ascii")
