"""A body that breaks off is gone on with (RFC 9110, 13.1.5 and 14), and nothing that a server answers can spoil it."""

from __future__ import annotations

import hashlib
import random
from email.utils import formatdate
from pathlib import Path

import pytest

from headwater.transport.fetch import Fetch, Fetched, TransportOptions
from headwater.transport.response import strong_validator
from headwater.transport.transport import Transport
from tests.support.scripted_server import answer, scripted

BODY = random.Random(7).randbytes(3_000_000)
SHA = hashlib.sha256(BODY).hexdigest()
QUICK = TransportOptions(retries=2, first_backoff_seconds=0.001, stall_timeout_seconds=60, connect_timeout_seconds=60)
STRONG = {"ETag": '"one"'}


def head(status: str, length: int, **fields: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{lines}\r\n".encode()


class Breaking:
    """Sends `share` of what is asked for, then closes; `rest` may answer requests for a rest in its own way."""

    def __init__(self, share: float = 1.0, fields: dict[str, str] | None = None, rest=None, body: bytes = BODY):
        self.share, self.fields, self.rest, self.body = share, STRONG if fields is None else fields, rest, body
        self.asked: list[str | None] = []
        self.conditions: list[str | None] = []

    def __call__(self, request, connection) -> bytes | None:
        wanted = request.headers.get("range")
        self.asked.append(wanted)
        self.conditions.append(request.headers.get("if-range"))
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and self.rest is not None:
            sent = self.rest(self, start)
            if isinstance(sent, bytes):
                return sent
        left = self.body[start:]
        if wanted:
            said = f"bytes {start}-{len(self.body) - 1}/{len(self.body)}"
            connection.sendall(head("206 Partial Content", len(left), Content_Range=said, **self.fields))
        else:
            connection.sendall(head("200 OK", len(left), **self.fields))
        cut = left[: int(len(self.body) * self.share)]
        connection.sendall(cut)
        return b"" if len(cut) == len(left) else None


def fetch(behaviour, folder: Path, options: TransportOptions = QUICK, **more) -> Fetched:
    with scripted({"/big": behaviour}) as server, Transport(options) as transport:
        target = str(folder / "body")
        return transport.one(Fetch(f"{server.base}/big", into=target, algorithms=("sha-256",), **more))


def is_whole(fetched: Fetched, folder: Path) -> bool:
    return (
        fetched.ok
        and fetched.octets == len(BODY)
        and fetched.digests == {"sha-256": SHA}
        and (folder / "body").read_bytes() == BODY
    )


@pytest.mark.parametrize("share", [0.4, 0.1, 0.03])
def test_a_connection_that_breaks_again_and_again_ends_with_the_whole(tmp_path: Path, share: float) -> None:
    server = Breaking(share)
    fetched = fetch(server, tmp_path)
    assert is_whole(fetched, tmp_path)
    assert server.asked[0] is None
    assert all(server.asked[1:])
    assert set(server.conditions[1:]) == {'"one"'}
    assert fetched.resumed_at > 0


def test_a_source_that_brings_too_little_each_time_is_given_up(tmp_path: Path) -> None:
    server = Breaking(0.003)  # 9,000 octets of 3,000,000
    fetched = fetch(server, tmp_path)
    assert fetched.failure is not None
    assert len(server.asked) == QUICK.retries + 1
    assert not list(tmp_path.iterdir())


OLD = formatdate(1_700_000_000, usegmt=True)
LATER = formatdate(1_700_000_061, usegmt=True)
SOON = formatdate(1_700_000_030, usegmt=True)


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        pytest.param(STRONG, '"one"', id="a strong entity tag"),
        pytest.param({"Last-Modified": OLD, "Date": LATER}, OLD, id="modified a minute before"),
        pytest.param({"Last-Modified": OLD, "Date": SOON}, None, id="modified just before (RFC 9110, 8.8.2.2)"),
        pytest.param({"Last-Modified": OLD}, None, id="no Date to compare with"),
        pytest.param({"ETag": 'W/"one"', "Last-Modified": OLD, "Date": LATER}, None, id="a weak entity tag"),
        pytest.param({}, None, id="nothing"),
        pytest.param({**STRONG, "Accept-Ranges": "none"}, None, id="no ranges offered"),
        pytest.param({**STRONG, "Content-Encoding": "gzip"}, None, id="a content coding"),
    ],
)
def test_only_a_strong_validator_asks_for_the_rest(tmp_path: Path, fields: dict[str, str], condition) -> None:
    server = Breaking(0.4, fields)
    fetched = fetch(server, tmp_path)
    assert server.conditions[1] == condition
    assert is_whole(fetched, tmp_path) if condition else not fetched.ok


def part(start: int, end: int, total: object, body: bytes = b"", status: str = "206 Partial Content", **more) -> bytes:
    return head(status, len(body), Content_Range=f"bytes {start}-{end}/{total}", **({"ETag": '"one"'} | more)) + body


LAST = len(BODY) - 1
WRONG = {
    "another range": lambda _, at: part(at - 1, LAST, len(BODY), BODY[at - 1 :]),
    "from the start": lambda _, __: part(0, LAST, len(BODY), BODY),
    "another total": lambda _, at: part(at, LAST, len(BODY) + 1, BODY[at:]),
    "an unknown total": lambda _, at: part(at, LAST, "*", BODY[at:]),
    "a range beyond its total": lambda _, at: part(at, len(BODY), len(BODY), BODY[at:] + b"x"),
    "an end before the start": lambda _, at: part(at, at - 1, len(BODY), b""),
    "another unit": lambda _, at: head("206 P", 5, Content_Range=f"lines {at}-{LAST}/{len(BODY)}") + b"lines",
    "no Content-Range": lambda _, at: head("206 Partial Content", len(BODY) - at, ETag='"one"') + BODY[at:],
    "several ranges": lambda _, at: part(
        at, LAST, len(BODY), BODY[at:], Content_Type="multipart/byteranges; boundary=x"
    ),
    "a content coding": lambda _, at: part(at, LAST, len(BODY), BODY[at:], Content_Encoding="gzip"),
    "another state": lambda _, at: part(at, LAST, len(BODY), BODY[at:], ETag='"two"'),
    "no word of its state": lambda _, at: (
        head("206 P", len(BODY) - at, Content_Range=f"bytes {at}-{LAST}/{len(BODY)}") + BODY[at:]
    ),
    "a weak tag of it": lambda _, at: part(at, LAST, len(BODY), BODY[at:], ETag='W/"one"'),
    "more than announced": lambda _, at: (
        (
            f"HTTP/1.1 206 P\r\nContent-Range: bytes {at}-{LAST}/{len(BODY)}\r\n"
            'ETag: "one"\r\nTransfer-Encoding: chunked\r\n\r\n'
            f"{len(BODY) - at + 9:x}\r\n"
        ).encode()
        + BODY[at:]
        + b"and more.\r\n0\r\n\r\n"
    ),
    "416": lambda _, __: head("416 Range Not Satisfiable", 0, Content_Range=f"bytes */{len(BODY)}"),
    "200 with all of it": lambda _, __: head("200 OK", len(BODY), ETag='"one"') + BODY,
    "an empty part": lambda _, at: part(at, LAST, len(BODY), b""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_the_rest_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    """The body is asked for from its start, once, and is what it should be."""
    wrong = WRONG[name]
    server = Breaking(0.4, rest=wrong)

    def behave(request, connection):
        server.share = 0.4 if len(server.asked) == 0 else 1.0
        return server(request, connection)

    fetched = fetch(behave, tmp_path)
    if name == "an empty part":  # it promises what it does not bring, each time
        assert not fetched.ok
        assert not list(tmp_path.iterdir())
        return
    assert is_whole(fetched, tmp_path), fetched.failure
    assert fetched.resumed_at == 0
    assert [bool(asked) for asked in server.asked] == [False, True, False][: 2 if name.startswith("200") else 3]


def test_a_rest_that_comes_in_pieces_is_put_together(tmp_path: Path) -> None:
    """A server may send less than was asked for (RFC 9110, 14.2)."""
    piece = 400_000
    server = Breaking(0.4, rest=lambda _, at: part(at, min(LAST, at + piece - 1), len(BODY), BODY[at : at + piece]))
    assert is_whole(fetch(server, tmp_path), tmp_path)
    assert len(server.asked) == 1 + -(-int(len(BODY) * 0.6) // piece)


def test_a_rest_from_another_origin_is_not_taken(tmp_path: Path) -> None:
    """Redirected elsewhere the second time, where the tag happens to be the same: tags are of one resource only."""
    first, second = Breaking(0.4), Breaking(body=bytes(len(BODY)))
    with scripted({"/x": second}) as other, scripted({}) as one, Transport(QUICK) as transport:

        def behave(request, connection) -> bytes | None:
            if first.asked:
                return answer(b"", "302 Found", Location=f"{other.base}/x")
            return first(request, connection)

        one.script["/big"] = behave
        fetched = transport.one(Fetch(f"{one.base}/big", into=str(tmp_path / "body"), algorithms=("sha-256",)))
    assert fetched.resumed_at == 0
    assert (tmp_path / "body").read_bytes() == bytes(len(BODY))
    assert second.asked == ["bytes=1200000-", None]


def test_an_endless_rest_stays_within_its_bound(tmp_path: Path) -> None:
    def endless(_server, at: int) -> bytes:
        return part(at, 10**17, 10**17 + 1, BODY)

    server = Breaking(0.4, rest=endless, fields=STRONG)
    fetched = fetch(server, tmp_path, max_octets=4_000_000)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4_000_000
    assert len(server.asked) < 10
    assert not fetched.ok


def test_a_server_that_always_begins_anew_is_bounded(tmp_path: Path) -> None:
    server = Breaking(0.4, rest=lambda self, _: None)

    def behave(request, connection):
        server.asked.append(request.headers.get("range"))
        connection.sendall(head("200 OK", len(BODY), ETag=f'"{len(server.asked)}"') + BODY[:1_200_000])

    fetched = fetch(behave, tmp_path)
    assert not fetched.ok
    assert len(server.asked) <= 2 * (QUICK.retries + 1)
    assert not list(tmp_path.iterdir())


def test_what_an_earlier_fetch_has_left_is_hashed_and_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "part"
    server = Breaking(0.4, rest=lambda *_: head("503 Not now", 0))
    assert not fetch(server, tmp_path, keep=str(kept)).ok
    assert kept.read_bytes() == BODY[:1_200_000]
    server = Breaking()
    fetched = fetch(server, tmp_path, keep=str(kept))
    assert is_whole(fetched, tmp_path)
    assert fetched.brought == 1_200_000
    assert server.asked == ["bytes=1200000-"]
    assert [path.name for path in tmp_path.iterdir()] == ["body"]


@pytest.mark.parametrize("left", ["gone", "empty", "a link", "a second name"])
def test_a_part_that_is_not_what_was_left_is_not_used(tmp_path: Path, left: str) -> None:
    path, other = tmp_path / "part", tmp_path / "other"
    if left == "empty":
        path.write_bytes(b"")
    elif left != "gone":
        other.write_bytes(BODY[:1_000_000])
        (path.symlink_to if left == "a link" else path.hardlink_to)(other)
    server = Breaking()
    assert is_whole(fetch(server, tmp_path, keep=str(path)), tmp_path)
    assert server.asked == [None]
    assert not other.exists() or other.read_bytes() == BODY[:1_000_000]


def test_a_small_body_is_not_kept(tmp_path: Path) -> None:
    small = Breaking(0.4, body=BODY[:900_000], rest=lambda *_: head("503 Not now", 0))
    assert not fetch(small, tmp_path, keep=str(tmp_path / "part")).ok
    assert not list(tmp_path.iterdir())


def test_an_answer_without_a_range_asked_for_is_no_content(tmp_path: Path) -> None:
    fetched = fetch(answer(b"x" * 10, "206 Partial Content", Content_Range="bytes 0-9/10"), tmp_path)
    assert fetched.status == 206


DATE, HOUR_BEFORE = "Thu, 19 Nov 2026 11:00:00 GMT", "Thu, 19 Nov 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("fields", "validator"),
    [
        ({"etag": '"a"'}, '"a"'),
        ({"etag": 'W/"a"', "last-modified": HOUR_BEFORE, "date": DATE}, None),
        ({"last-modified": HOUR_BEFORE, "date": DATE}, HOUR_BEFORE),
        ({"last-modified": HOUR_BEFORE}, None),
        ({"last-modified": "an hour ago", "date": DATE}, None),
        ({"last-modified": DATE, "date": DATE}, None),  # it may have changed within that second
        ({"last-modified": HOUR_BEFORE + "\t", "date": DATE}, None),
        ({"etag": '"a"', "accept-ranges": " None "}, None),
        ({"etag": '"a"', "content-encoding": "gzip"}, None),
        ({"etag": '"a"', "content-encoding": " Identity "}, '"a"'),
        ({}, None),
    ],
)
def test_which_validator_tells_one_state_from_another(fields: dict[str, str], validator: str | None) -> None:
    """A weak one would put the rest of another state behind what has come (RFC 9110, 13.1.5)."""
    assert strong_validator(fields) == validator
