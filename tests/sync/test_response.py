"""An answer on its way into a file: whatever ends it early leaves nothing behind, and nothing of others is touched."""

import os
from pathlib import Path
from typing import Any

import pytest

from headwater.transport import response as reception
from headwater.transport.fetch import Fetch
from headwater.transport.response import SMALL_OCTETS, ResponseReceiver

BIG = b"x" * (SMALL_OCTETS + 1)


def receiving(into: Path) -> ResponseReceiver:
    one = ResponseReceiver()
    one.begin(Fetch("http://127.0.0.1/big", into=str(into), max_octets=1 << 30))
    for line in (b"HTTP/1.1 200 OK\r\n", b"Content-Type: text/plain\r\n", b"\r\n"):
        one.line(line)
    return one


@pytest.mark.parametrize("octets", [BIG, b"small"], ids=["as it comes", "when complete"])
def test_an_interrupt_as_soon_as_the_file_exists_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, octets: bytes
) -> None:
    made: list[int] = []

    def interrupted(*arguments: Any) -> int:
        made.append(os.open(*arguments))
        raise KeyboardInterrupt

    class Interrupting:
        """The module's `os`, interrupted when a file has been made."""

        open = staticmethod(interrupted)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    one = receiving(tmp_path / "big")
    monkeypatch.setattr(reception, "os", Interrupting())
    if octets is BIG:
        assert one.body(octets) == 0  # ends the transfer; the transport raises it again
        assert isinstance(one.raised, KeyboardInterrupt)
    else:
        assert one.body(octets) is None
        one.read_head()
        with pytest.raises(KeyboardInterrupt):
            one.complete()
    assert os.listdir(tmp_path) == ["big"]
    one.discard()
    os.close(*made)
    assert os.listdir(tmp_path) == []


def test_a_file_that_was_there_before_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"theirs")
    one = receiving(tmp_path / "big")
    assert one.body(BIG) == 0
    assert one.failure is not None
    assert "File exists" in one.failure.text
    one.discard()
    assert (tmp_path / "big").read_bytes() == b"theirs"


def test_a_finished_file_stays(tmp_path: Path) -> None:
    one = receiving(tmp_path / "big")
    one.body(BIG)
    one.read_head()
    one.complete()
    one.discard()
    assert (tmp_path / "big").read_bytes() == BIG


@pytest.mark.parametrize(
    ("head", "closes"),
    [
        (b"HTTP/1.1 200 OK", False),
        (b"HTTP/1.0 200 OK", True),
        (b"HTTP/1.0 200 OK\nConnection: keep-alive", False),
        (b"HTTP/1.1 200 OK\nConnection: close", True),
        (b"HTTP/1.0 200 Connection established\n\nHTTP/1.1 200 OK", False),
        (b"HTTP/1.0 103 Early Hints\n\nHTTP/1.1 200 OK", False),
        (b"HTTP/1.1 103 Early Hints\n\nHTTP/1.0 200 OK", True),
    ],
)
def test_the_final_answer_tells_whether_the_connection_ends(head: bytes, closes: bool) -> None:
    """RFC 9112, 9.3: neither what a proxy says of its tunnel nor an interim answer does."""
    one = ResponseReceiver()
    one.begin(Fetch("https://127.0.0.1/"))
    for line in (head + b"\n\n").split(b"\n")[:-1]:
        one.line(line + b"\r\n")
    one.read_head()
    assert (one.status, one.is_closing) == (200, closes)
