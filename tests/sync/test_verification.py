"""Verification, comparison, guarding and waiting as tables (DST-V, DST-4.3, DST-5.3, DST-B4, DST-C6, DST-F6)."""

from __future__ import annotations

import itertools

import pytest

from headwater.spec.records import parse_hash
from headwater.sync.audit.verdicts import ExpectedFile, FoundFile, judge_file
from headwater.sync.connection import Refusal, Scope, origin_of
from headwater.sync.options import Choice
from headwater.sync.reports import DIFFERENT, MISSING, SAME, UNVERIFIABLE
from headwater.sync.sets.polling import PollingHints, PollInterval, next_wait
from headwater.sync.source_times import SECOND, http_date_micros, mtime_ns
from headwater.sync.transfer.verification import (
    CopyState,
    Judgement,
    ListedResource,
    LocalCopy,
    compare,
    digests_of,
    judge,
    strongest_of,
)
from headwater.sync.transfer.work_queue import octet_limit

A, B = "a" * 64, "b" * 64
MD5 = "c" * 32


@pytest.mark.parametrize(
    ("listed", "found", "modified", "expected"),
    [
        (ListedResource(f"sha-256:{A}", 3), A, None, Judgement.GOOD),
        (ListedResource(f"sha-256:{A}", 3), B, None, Judgement.DIFFERENT),
        (ListedResource(f"sha-256:{A}", 4), A, None, Judgement.DIFFERENT),
        (ListedResource(), A, None, Judgement.GOOD),
        (ListedResource(f"sha-256:{A}", known_at=0), B, "Thu, 01 Jan 1970 00:00:01 GMT", Judgement.NEWER),
        (ListedResource(f"sha-256:{A}", known_at=1_500_000), B, "Thu, 01 Jan 1970 00:00:01 GMT", Judgement.DIFFERENT),
        (
            ListedResource(f"sha-256:{A}", known_at=2 * SECOND, lastmod=0),
            B,
            "Thu, 01 Jan 1970 00:00:01 GMT",  # later than the resource was changed, before the list spoke of it
            Judgement.DIFFERENT,
        ),
    ],
)
def test_judge(listed: ListedResource, found: str, modified: str | None, expected: Judgement) -> None:
    assert judge(listed, strongest_of(listed.hash), 3, found, modified).judgement is expected


@pytest.mark.parametrize(
    ("listed", "verified"),
    [
        (ListedResource(), False),
        (ListedResource(length=3), True),
        (ListedResource(f"sha-256:{A}"), True),
        (ListedResource(f"sha-256:{A}", 3), True),
    ],
)
def test_only_what_a_list_states_verifies(listed: ListedResource, verified: bool) -> None:
    verdict = judge(listed, strongest_of(listed.hash), 3, A, None)
    assert (verdict.judgement, verdict.verified) == (Judgement.GOOD, verified)


@pytest.mark.parametrize("length", [None, 2, 3, 4])
@pytest.mark.parametrize("found", [A, B])
def test_what_fits_is_what_is_judged_to_be_good(length: int | None, found: str) -> None:
    """DST-V1."""
    digest = strongest_of(f"sha-256:{A}")
    verdict = judge(ListedResource(f"sha-256:{A}", length), digest, 3, found, None)
    assert (verdict.judgement is Judgement.GOOD) is (found == A and length in (None, 3))


@pytest.mark.parametrize(
    ("listed", "held", "same"),
    [
        (ListedResource(f"sha-256:{A}"), LocalCopy(f"sha-256:{A}", 3, None), CopyState.YES),
        (ListedResource(f"sha-256:{A}"), LocalCopy(f"sha-256:{B}", 3, None), CopyState.NO),
        (ListedResource(f"md5:{MD5}"), LocalCopy(f"sha-256:{A}", 3, None), CopyState.ASK),
        (ListedResource(f"md5:{MD5} sha-256:{A}"), LocalCopy(f"md5:{MD5} sha-256:{A}", 3, None), CopyState.YES),
        (ListedResource(f"md5:{MD5} sha-256:{A}"), LocalCopy(f"md5:{MD5} sha-256:{B}", 3, None), CopyState.NO),
        (ListedResource(f"sha-256:{A} md5:{MD5}"), LocalCopy(f"md5:{'d' * 32} sha-256:{A}", 3, None), CopyState.NO),
        (ListedResource(length=3, lastmod=1), LocalCopy(None, None, 1), CopyState.ASK),
        (ListedResource(length=3, lastmod=1), LocalCopy(None, 3, None), CopyState.ASK),
        (ListedResource(length=3), LocalCopy(None, 3, 1), CopyState.ASK),
        (ListedResource(length=3, lastmod=1), LocalCopy(None, 3, 1, newer=True), CopyState.ASK),
        (ListedResource(length=3, lastmod=1), LocalCopy(None, 3, 1), CopyState.YES),
        (ListedResource(length=4, lastmod=1), LocalCopy(None, 3, 1), CopyState.NO),
        (ListedResource("blake3:ab", 3, 1), LocalCopy(None, 3, 1, "blake3:ab"), CopyState.YES),
        (ListedResource("blake3:ab", 3, 1), LocalCopy(None, 3, 1, "blake3:cd"), CopyState.ASK),
        (ListedResource("blake3:ab", 4, 1), LocalCopy(None, 3, 1, "blake3:cd"), CopyState.NO),
        (ListedResource("blake3:ab", 3, 1), LocalCopy(None, 3, 1), CopyState.YES),
        (ListedResource(length=3, lastmod=2), LocalCopy(None, 3, 1), CopyState.ASK),
        (ListedResource(lastmod=1), LocalCopy(None, 3, 1), CopyState.ASK),
        (ListedResource(), LocalCopy(None, 3, 1), CopyState.ASK),
    ],
)
def test_compare(listed: ListedResource, held: LocalCopy, same: CopyState) -> None:
    assert compare(listed, held) is same


@pytest.mark.parametrize(
    ("length", "hash_", "lastmod", "newer", "size", "mtime", "own", "verdict"),
    [
        (3, f"sha-256:{A}", None, False, 3, 0, f"sha-256:{A}", SAME),
        (3, f"sha-256:{A}", None, False, None, 0, "", MISSING),
        (3, f"sha-256:{A}", None, False, 3, 0, f"sha-256:{B}", DIFFERENT),
        (3, f"sha-256:{A} md5:{MD5}", None, False, 3, 0, f"sha-256:{A} md5:{'d' * 32}", DIFFERENT),
        (4, f"sha-256:{A}", None, False, 3, 0, f"sha-256:{A}", DIFFERENT),
        (3, f"SHA-256:{A.upper()}", None, False, 3, 0, f"sha-256:{A}", SAME),
        (None, f"SHA-256:{A.upper()}", None, False, 3, 0, f"sha-256:{A}", SAME),
        (4, f"SHA-256:{A.upper()}", None, False, 3, 0, f"sha-256:{A}", DIFFERENT),
        (3, None, SECOND, False, 3, 1_000_000_000, "", SAME),
        (3, None, SECOND, False, 3, 2_000_000_000, "", DIFFERENT),
        (None, None, None, False, 3, 0, "", UNVERIFIABLE),
        (3, None, SECOND, True, 3, 1_000_000_000, "", DIFFERENT),
    ],
)
def test_judge_file(length, hash_, lastmod, newer, size, mtime, own, verdict) -> None:
    """DST-Q: all listed digests that can be computed; what was newer than listed is not in sync until confirmed."""
    found = None if size is None else FoundFile(size, mtime, own)
    assert judge_file(ExpectedFile(length=length, hash=hash_, lastmod=lastmod, newer=newer), found) == verdict


DAY_ = 86_400 * SECOND
AFTER = (2 * DAY_ + 5 * SECOND) * 1000
TIMES = [
    ("as listed", 2 * DAY_ + 5 * SECOND, AFTER, None, SAME),
    ("another", 2 * DAY_ + 6 * SECOND, AFTER, None, DIFFERENT),
    ("the day of it", 2 * DAY_, AFTER, None, UNVERIFIABLE),
    ("another day", 1 * DAY_, AFTER, None, DIFFERENT),
    ("placed without one, and no later", 9 * SECOND, AFTER, (AFTER, None, 9 * SECOND), UNVERIFIABLE),
    ("placed without one, and later", 10 * SECOND, AFTER, (AFTER, None, 9 * SECOND), DIFFERENT),
    ("placed with one", 8 * SECOND, AFTER, (AFTER, 7 * SECOND, 9 * SECOND), DIFFERENT),
    ("altered since it was placed", 8 * SECOND, AFTER, (AFTER + 1, None, 9 * SECOND), DIFFERENT),
    ("of no known moment", 8 * SECOND, AFTER, (AFTER, None, None), DIFFERENT),
]


@pytest.mark.parametrize(("lastmod", "mtime", "placed", "verdict"), [t[1:] for t in TIMES], ids=[t[0] for t in TIMES])
def test_times_alone_are_no_difference_where_they_cannot_tell(
    lastmod: int, mtime: int, placed: tuple[int, int | None, int | None] | None, verdict: str
) -> None:
    """DST-Q: a file that no stated time was given to has whatever time the server told."""
    mtime_ns, placed_lastmod, known_at = placed or (None, None, None)
    expected = ExpectedFile(lastmod=lastmod, mtime_ns=mtime_ns, placed_lastmod=placed_lastmod, known_at=known_at)
    assert judge_file(expected, FoundFile(3, mtime, "")) == verdict


HEX = {"sha-512": 128, "sha-384": 96, "sha-256": 64, "sha-1": 40, "md5": 32}
"""The algorithms that can be computed, strongest first, and how many hexadecimal digits each has."""


@pytest.mark.parametrize(("stronger", "weaker"), list(itertools.combinations(HEX, 2)))
def test_the_stronger_of_two_digests_counts(stronger: str, weaker: str) -> None:
    """DST-V1: whichever is listed first, a weaker one never decides."""
    strong, weak = f"{stronger}:{'a' * HEX[stronger]}", f"{weaker}:{'b' * HEX[weaker]}"
    for text in (f"{strong} {weak}", f"{weak} {strong}"):
        found = strongest_of(text)
        assert found is not None
        assert found.algorithm == stronger
        assert [digest.algorithm for digest in digests_of(text)] == [stronger, weaker]


def test_the_first_of_two_digests_of_one_algorithm_counts() -> None:
    """AMB-32."""
    first, second = "a" * 32, "b" * 32
    for text in (f"md5:{first} md5:{second}", f"md5:{first} md5:{second} md5:{first}"):
        assert [digest.hex for digest in digests_of(text)] == [first]
        read = parse_hash(text)
        assert [digest.hex for digest in read.digests] == [first]
        assert read.contradictory == (f"md5:{second}",)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Thu, 01 Jan 1970 00:00:01 GMT", 1),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Mon, 01 Jan 0001 00:00:00 GMT", None),
        ("Sun, 06 Nov 0094 08:49:37 GMT", None),
        ("2013-01-01T00:00:00Z", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_http_dates(text: str, seconds: int | None) -> None:
    assert http_date_micros(text) == (None if seconds is None else seconds * SECOND)


@pytest.mark.parametrize(
    ("longest", "quiet", "retry_after", "max_age", "seconds"),
    [
        (None, 0, None, None, 60),
        (None, 50, None, None, 60),
        (3600, 2, None, None, 135),
        (3600, 50, None, None, 3600),
        (None, 0, 500, None, 500),
        (None, 0, None, 600, 600),
        (None, 0, None, 1e9, 86_400),
        (300, 0, None, 600, 300),
        (300, 0, 900, 600, 900),
    ],
)
def test_waiting(
    longest: float | None, quiet: int, retry_after: float | None, max_age: float | None, seconds: float
) -> None:
    """DST-C6: as asked while there are changes, growing to the longest, Retry-After honoured."""
    hints = PollingHints()
    hints.retry_after_seconds, hints.max_age_seconds = retry_after, max_age
    assert next_wait(PollInterval(60, longest), quiet, hints, failures=0, chance=0.0) == seconds


def test_waits_are_spread_by_a_tenth_and_grow_to_a_day_after_failures() -> None:
    assert next_wait(PollInterval(60), 0, PollingHints(), failures=99, chance=0.0) == 86_400
    assert next_wait(PollInterval(60), 0, PollingHints(), failures=0, chance=1.0) == pytest.approx(66)


@pytest.mark.parametrize(
    ("longest", "quiet", "failures", "seconds"),
    [(None, 10_000, 1, 90), (None, 10_000, 3, 202.5), (3600, 2, 1, 135), (3600, 10_000, 1, 3600), (90, 99, 4, 303.75)],
)
def test_one_failure_after_a_quiet_time_waits_no_longer_than_one_at_its_beginning(
    longest: float | None, quiet: int, failures: int, seconds: float
) -> None:
    """DST-C6: a source that is restarted after a quiet night is asked again at once, not after a day."""
    assert next_wait(PollInterval(60, longest), quiet, PollingHints(), failures=failures, chance=0.0) == seconds


def test_bounds() -> None:
    assert octet_limit(None, 7) == 7
    assert octet_limit(10, 1 << 40) == 64 << 20
    assert octet_limit(1 << 30, 1 << 40) == 4 << 30
    assert mtime_ns(-1, None) == -1000
    assert mtime_ns(-(1 << 31) * 1_000_000 - 1, None) is None
    assert mtime_ns(1, None) == 1000


@pytest.mark.parametrize(
    ("uri", "refusal"),
    [
        ("http://h/x", None),
        ("https://h/x", None),
        ("http://h:80/x", None),
        ("http://H/x", None),
        ("http://h:81/x", Refusal.HOST),
        ("http://i/x", Refusal.HOST),
        ("http://allowed/x", None),
        ("http://allowed:99/x", None),
        ("ftp://h/x", Refusal.SCHEME),
        ("http://a@h/x", Refusal.USERINFO),
        ("http://h/\r\nHost: x", Refusal.MALFORMED),
        ("http://h/" + "x" * 40_000, Refusal.MALFORMED),
    ],
)
def test_scope(uri: str, refusal: Refusal | None) -> None:
    """DST-S12."""
    scope = Scope(frozenset(filter(None, [origin_of("http://h/")])), frozenset(["allowed"]))
    found = scope.refusal(uri)
    if uri == "http://allowed:99/x":
        assert found is None
    else:
        assert found is refusal


def test_choice() -> None:
    choice = Choice(("*.pdf", "docs/*"), ("*secret*",))
    assert choice.takes("http://h/a.pdf", b"a.pdf")
    assert choice.takes("http://h/docs/deep/x", b"docs/deep/x")
    assert not choice.takes("http://h/b.txt", b"b.txt")
    assert not choice.takes("http://h/docs/secret.pdf", b"docs/secret.pdf")
    away = Choice((), ("*://cdn.example/**", "https://h/a/*.xml"))
    assert not away.takes("https://cdn.example/deep/x?y", b"cdn.example/deep/x?y")
    assert not away.takes("https://h/a/b.xml", b"b.xml")
    assert away.takes("https://h/a/b/c.xml", b"b/c.xml")
    assert away.takes("http://h/a/b.xml", b"b.xml")
