"""Laws: what the writer accepts, the reader gives back unchanged and without a warning; both quick ways included."""

from __future__ import annotations

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spec.kinds import CHANGE_FREQUENCIES, RULES, Kind, Need
from headwater.spec.records import HEX_LENGTH, ChangeKind, Digest, Document, Entry, Link, parse_hash
from headwater.spec.times import format_datetime, parse_datetime
from headwater.spec.writer import DocumentWriter, Profile, write_document
from tests.support.documents import Read
from tests.support.examples import examples

moments = st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9998, 12, 30), timezones=st.just(dt.UTC))
uris = st.builds(
    "{}://{}/{}".format,
    st.sampled_from(["http", "https", "ftp"]),
    st.sampled_from(["example.com", "EXAMPLE.com:8080", "user@[::1]", "a.b-c.example"]),
    st.text("abcXYZ019-._~!$&'()*+,;=:@/?#%[]", max_size=40),
)
texts = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1, max_size=20
)
segments = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\\ufffe\uffff"), min_size=1, max_size=12
).filter(lambda text: text != "..")


def hex_digits(algorithm: str) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=HEX_LENGTH[algorithm], max_size=HEX_LENGTH[algorithm])


paths = st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
digests = st.lists(st.sampled_from(sorted(HEX_LENGTH)), min_size=1, max_size=4, unique=True).flatmap(
    lambda names: st.tuples(*map(hex_digits, names)).map(
        lambda values: " ".join(f"{name}:{value}" for name, value in zip(names, values, strict=True))
    )
)  # fmt: skip
types = st.from_regex(r"[a-z0-9][a-z0-9.+_\-]{0,12}/[a-z0-9][a-z0-9.+_\-]{0,12}", fullmatch=True)
lengths = st.integers(0, 2**63 - 1)
relations = st.one_of(st.sampled_from(["duplicate", "via", "describedby", "timemap", "profile"]), uris)
extras = st.lists(
    st.tuples(st.sampled_from(["{http://x.example/}a", "{http://x.example/}b", "{http://y.example/?a&b}a"]), texts),
    unique_by=lambda pair: pair[0],
    max_size=3,
).map(tuple)


def maybe(strategy: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | strategy


links = st.builds(
    Link,
    rel=relations,
    href=uris,
    encoding=maybe(st.sampled_from(["gzip", "br"])),
    hash=maybe(digests),
    length=maybe(lengths),
    modified=maybe(moments),
    pri=maybe(st.integers(1, 999_999)),
    type=maybe(types),
    profile=maybe(uris),
    extra=extras,
)
resources = st.builds(
    Entry,
    loc=uris,
    lastmod=maybe(moments),
    changefreq=maybe(st.sampled_from(sorted(CHANGE_FREQUENCIES))),
    encoding=maybe(st.sampled_from(["gzip", "br"])),
    hash=maybe(digests),
    length=maybe(lengths),
    type=maybe(types),
    links=st.just(()) | st.lists(links, max_size=3).map(tuple),
    extra=st.just(()) | extras,
)
UP = Link(rel="up", href="http://example.com/up")
START = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


@st.composite
def documents(draw) -> tuple[Document, list[Entry], Profile]:
    kind = draw(
        st.sampled_from([Kind.RESOURCE_LIST, Kind.CHANGE_LIST, Kind.RESOURCE_DUMP_MANIFEST, Kind.CHANGE_DUMP_MANIFEST])
    )
    rules = RULES[kind]
    document = Document(
        kind=kind,
        capability=rules.capability,
        at=START if rules.at is Need.MUST else None,
        completed=draw(maybe(moments)) if rules.at is Need.MUST else None,
        from_=START if rules.from_ is Need.MUST else None,
        links=(UP, *draw(st.lists(links, max_size=2))),
        extra=draw(extras),
    )
    entries = draw(st.lists(resources, max_size=8))
    profile = draw(st.sampled_from(Profile))
    if rules.entry_path is Need.MUST:
        entries = [_with(entry, path=draw(paths)) for entry in entries]
    if rules.entry_change is Need.MUST:
        times = sorted(draw(st.lists(moments, min_size=len(entries), max_size=len(entries))))
        entries = [
            _with(entry, change=draw(st.sampled_from([ChangeKind.CREATED, ChangeKind.UPDATED])), datetime=moment)
            for entry, moment in zip(entries, times, strict=True)
        ]
        if profile is Profile.BOTH:
            entries = [_with(entry, lastmod=entry.datetime) for entry in entries]
    return document, entries, profile


def _with(entry: Entry, **fields: object) -> Entry:
    import msgspec

    return msgspec.structs.replace(entry, **fields)


@settings(max_examples=examples(250), deadline=None)
@given(documents(), st.lists(st.integers(1, 300), max_size=3))
def test_what_is_written_is_read_back(made: tuple[Document, list[Entry], Profile], pieces: list[int]) -> None:
    document, entries, profile = made
    data = b"".join(write_document(document, entries, profile))
    for quick in (True, False):
        read = Read(data, quick=quick, pieces=pieces)
        assert (read.fault, read.warnings) == (None, ())
        assert read.document == document
        assert read.entries == entries
        assert b"".join(write_document(document, read.entries, profile)) == data


@given(documents(), st.integers(1, 5))
def test_blocks_change_nothing(made: tuple[Document, list[Entry], Profile], size: int) -> None:
    document, entries, profile = made
    writer = DocumentWriter(document, profile)
    data = writer.head()
    for at in range(0, len(entries), size):
        data += writer.entries(iter(entries[at : at + size]))
    assert data + writer.tail() == b"".join(write_document(document, entries, profile))


@given(moments)
def test_times_come_back(moment: dt.datetime) -> None:
    assert parse_datetime(format_datetime(moment)) == (moment, ())  # RS-TIME-02, RS-TIME-03


@given(st.datetimes(min_value=dt.datetime(2, 1, 1), max_value=dt.datetime(9998, 1, 1)), st.integers(-1439, 1439))
def test_offsets_are_subtracted(local: dt.datetime, minutes: int) -> None:
    # AMB section H, 1: a library adds the offset instead
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    moment, forgiven = parse_datetime(local.replace(tzinfo=zone).isoformat())
    assert (moment, forgiven) == (local.replace(tzinfo=zone), ())
    assert moment.tzinfo is dt.UTC


@given(st.text(max_size=40) | st.text("0123456789-:.TZ+tz ,", max_size=26))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        moment, _ = parse_datetime(text)
    except ValueError:
        return
    assert moment.tzinfo is dt.UTC


@given(digests)
def test_digests_come_back(text: str) -> None:
    read = parse_hash(text)
    assert " ".join(map(str, read.digests)) == text
    assert not (read.unreadable)
    assert not (read.guessed)
    assert not (read.contradictory)


@given(st.text(max_size=60))
def test_any_text_is_a_hash(text: str) -> None:
    read = parse_hash(text)
    assert all(isinstance(digest, Digest) for digest in read.digests)
    assert len(read.digests) + len(read.unreadable) <= len(text.split())
