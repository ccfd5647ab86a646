"""The published metadata of a file: length, digests, media type, and the time that a web server would state for it."""

from __future__ import annotations

import datetime as dt

from headwater.catalog.interface import Metadata
from headwater.files.hashing import FileState
from headwater.ingest.folder.media_types import media_type
from headwater.spec.timestamps import SECOND, from_microseconds

_EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)
_LATEST = dt.datetime.max.replace(tzinfo=dt.UTC)


def describe(uri: str, state: FileState, digests: str, held: Metadata | None, now: dt.datetime) -> Metadata:
    """The metadata of a file that was read in this state; `held` is what the set says of it so far.

    `digests` is the text of `hash`, `type` is an essence (AMB-09), `lastmod` has whole seconds as HTTP's Last-Modified
    has.
    """
    digest = digests or None
    return Metadata(
        lastmod=_lastmod(state[1], now, held if held is not None and held.hash == digest else None),
        hash=digest,
        length=state[0],
        type=media_type(uri),
    )


def _lastmod(mtime_ns: int, now: dt.datetime, same: Metadata | None) -> dt.datetime:
    """The file's mtime, never in the future (AMB-27; RFC 9110 8.8.2.1): then the time at which it was found so."""
    try:
        lastmod = from_microseconds(mtime_ns // 1_000_000_000 * SECOND)
    except OverflowError:
        lastmod = _EARLIEST if mtime_ns < 0 else _LATEST
    if lastmod <= now:
        return lastmod
    found = same.lastmod if same is not None and same.lastmod is not None else now
    return found.replace(microsecond=0)
