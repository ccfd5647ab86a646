"""What is published of a file, when a file is trusted unread, and when deletions are held back: pure decisions."""

import datetime as dt
import re

import pytest

from headwater.catalog.interface import Metadata
from headwater.files import media_types
from headwater.files.media_types import UNKNOWN, media_type
from headwater.ingest.deletion_guard import HoldReason, judge
from headwater.ingest.folder.comparison import COARSE_TICK_NS, RACY, TICK_NS, pack, rules_mark, settled_note
from headwater.ingest.folder.file_events import describe
from headwater.quantities import FLOOR

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, 500_000, tzinfo=dt.UTC)
SECOND = 1_000_000_000


def seconds(moment: dt.datetime) -> int:
    return int(moment.timestamp()) * SECOND


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.pdf", "application/pdf"),
        ("deep/A.XML", "application/xml"),
        ("a.tar.gz", "application/gzip"),
        ("a.nq", "application/n-quads"),
        ("README", UNKNOWN),
        (".pdf", UNKNOWN),
        ("a.", UNKNOWN),
        ("a.pdf/file", UNKNOWN),
        ("%FF.txt", "text/plain"),
        ("a.unheardof", UNKNOWN),
    ],
)
def test_media_types_come_from_our_own_table(name: str, expected: str) -> None:
    assert media_type(name) == expected


def test_media_types_are_lower_case_essences() -> None:
    """AMB-09, RS-MD-11: no parameters; every extension has one type."""
    assert all(re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", kind) for kind in media_types.MEDIA_TYPES)
    extensions = " ".join(media_types.MEDIA_TYPES.values()).split()
    assert len(extensions) == len(set(extensions))


def described(mtime_ns: int, held: Metadata | None = None) -> Metadata:
    return describe("a.txt", (3, mtime_ns, 0, 1), "md5:" + "a" * 32 + " sha-256:" + "b" * 64, held, NOW)


def test_metadata_of_a_file() -> None:
    """RS-MD-05, RS-MD-08, RS-MD-09: md5 first, decimal octets, whole seconds as in Last-Modified."""
    found = described(seconds(NOW) - SECOND + 999_999_999)
    assert found == Metadata(
        lastmod=NOW.replace(microsecond=0) - dt.timedelta(seconds=1),
        hash="md5:" + "a" * 32 + " sha-256:" + "b" * 64,
        length=3,
        type="text/plain",
    )


@pytest.mark.parametrize(
    ("mtime_ns", "expected"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (-1, "1969-12-31T23:59:59+00:00"),
        (-14_182_940 * 10_000 * SECOND, "0001-01-01T00:00:00+00:00"),
        (-(1 << 62), "1823-11-12T00:06:21+00:00"),
        (seconds(NOW) + 3600 * SECOND, "2026-11-21T12:00:00+00:00"),
        (1 << 62, "2026-11-21T12:00:00+00:00"),
        (10**30, "2026-11-21T12:00:00+00:00"),
    ],
)
def test_no_mtime_breaks_anything(mtime_ns: int, expected: str) -> None:
    """AMB-27: never in the future; before 1970 and beyond 9999 are times like others."""
    lastmod = described(mtime_ns).lastmod
    assert lastmod is not None
    assert lastmod.isoformat() == expected


def test_a_future_mtime_is_not_a_change_again_and_again() -> None:
    future = seconds(NOW) + 3600 * SECOND
    earlier = Metadata(lastmod=NOW - dt.timedelta(days=1), hash=described(0).hash)
    assert described(future, earlier).lastmod == (NOW - dt.timedelta(days=1)).replace(microsecond=0)
    other = Metadata(lastmod=NOW - dt.timedelta(days=1), hash="md5:" + "c" * 32)
    assert described(future, other).lastmod == NOW.replace(microsecond=0)


@pytest.mark.parametrize(
    ("ctime_ns", "mtime_ns", "racy"),
    [
        (1_000 * SECOND + 1 - TICK_NS - 1, 5, False),
        (1_000 * SECOND + 1 - TICK_NS + 1, 5, True),
        (1_000 * SECOND + 1, 5, True),
        (2_000 * SECOND + 1, 5, True),  # a clock that was put back: read again until it has caught up
        (999 * SECOND, 999 * SECOND, True),  # a file system of whole seconds has long ticks
        (1_000 * SECOND - COARSE_TICK_NS // SECOND * SECOND - SECOND, 7 * SECOND, False),
        (999 * SECOND, 999 * SECOND + 1, False),
        (1 * SECOND + 1, 5_000 * SECOND + 1, False),  # mtime can be set by anybody: it does not count
    ],
)
def test_a_file_read_within_a_tick_of_its_change_is_not_trusted(ctime_ns: int, mtime_ns: int, racy: bool) -> None:
    found = settled_note(1, (3, mtime_ns, ctime_ns, 9), 1_000 * SECOND + 1, ctime_ns)
    assert found == (RACY if racy else pack(1, 3, mtime_ns, ctime_ns, 9))


def test_other_rules_make_another_mark() -> None:
    marks = {
        rules_mark("1", "md5"),
        rules_mark("1", "sha-256"),
        rules_mark("1", "md5", "sha-256"),
        rules_mark("2", "md5"),
    }
    assert len(marks) == 4
    assert rules_mark("1", "md5", "sha-256") == rules_mark("1", "md5", "sha-256")


@pytest.mark.parametrize(
    ("held", "vanished", "found", "share", "reason"),
    [
        (0, 0, 0, 0.2, None),
        (5, 0, 5, 0.2, None),
        (1, 1, 0, 0.2, HoldReason.ROOT_EMPTY),
        (5, 5, 3, 0.2, HoldReason.ALL_GONE),
        (5, 5, 3, 1.0, None),
        (1, 1, 1, 0.5, HoldReason.ALL_GONE),
        (11, 9, 2, 0.2, None),
        (11, 10, 1, 0.2, None),
        (11, 11, 0, 0.2, HoldReason.ROOT_EMPTY),
        (54, 11, 43, 0.2, HoldReason.TOO_MANY),
        (55, 11, 44, 0.2, None),
        (100, FLOOR, 90, 0.0001, None),
        (100, 20, 80, 0.2, None),
        (100, 21, 79, 0.2, HoldReason.TOO_MANY),
        (100, 100, 40, 0.2, HoldReason.ALL_GONE),
        (100, 100, 0, 1.0, None),
        (100, 99, 1, 1.0, None),
        (100, 60, 40, 0.5, HoldReason.TOO_MANY),
        (100, 50, 50, 0.5, None),
        (100, 1, 99, 0.0, HoldReason.TOO_MANY),
        (20, 5, 15, 0.2, None),
    ],
)
def test_when_deletions_are_held_back(
    held: int, vanished: int, found: int, share: float, reason: HoldReason | None
) -> None:
    verdict = judge(held, vanished, found, share)
    assert (verdict.reason if verdict else None) is reason
    if verdict:
        assert f"{vanished:,} of {held:,}" in str(verdict)
        assert "`headwater allow-deletions` allows that once" in str(verdict)
