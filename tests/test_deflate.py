"""Raw deflate: what comes out can be read by zlib, and is the same wherever the memory of thread and process lies."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.deflate import FAST_LEVEL, FULL_FLUSH, SMALL_LEVEL, deflate_whole, raw_deflater, stored_block

THREADS = 200
SHORT = [b"some text " * times for times in (2, 3, 4, 6, 12, 20)]
"""Of the same octets again and again, and so short that one wrong entry in a table of so few is met soon."""

CHUNKS = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(SHORT), st.none()), max_size=12)
"""Octets that come one after another; None: what has come is flushed."""


def as_stream(content: bytes, level: int) -> bytes:
    deflater = raw_deflater(level)
    return deflater.compress(content) + deflater.flush()


@pytest.mark.parametrize("level", [FAST_LEVEL, SMALL_LEVEL])
@pytest.mark.parametrize("deflate", [deflate_whole, as_stream])
def test_the_same_octets_come_out_in_every_thread(deflate: Callable[[bytes, int], bytes], level: int) -> None:
    """Each thread has a stack of its own, and so other addresses in the processor's registers, as a process has."""
    together = threading.Barrier(THREADS)
    found: list[set[bytes]] = [set() for _content in SHORT]

    def run() -> None:
        together.wait()
        for content, outcomes in zip(SHORT, found, strict=True):
            outcomes.add(deflate(content, level))

    threads = [threading.Thread(target=run) for _number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(outcomes) for outcomes in found] == [1] * len(SHORT)


@pytest.mark.parametrize("level", [FAST_LEVEL, SMALL_LEVEL])
@given(chunks=CHUNKS)
def test_zlib_reads_what_was_deflated(level: int, chunks: list[bytes | None]) -> None:
    deflater = raw_deflater(level)
    parts = [deflater.flush(FULL_FLUSH) if one is None else deflater.compress(one) for one in chunks]
    content = b"".join(one for one in chunks if one is not None)
    assert zlib.decompress(b"".join((*parts, deflater.flush())), -15) == content
    assert zlib.decompress(deflate_whole(content, level), -15) == content


@given(chunks=CHUNKS)
def test_after_a_full_flush_octets_can_be_put_between(chunks: list[bytes | None]) -> None:
    """Nothing that comes later refers to what was before it (RFC 1951 2)."""
    deflater = raw_deflater(FAST_LEVEL)
    parts, content = list[bytes](), list[bytes]()
    for one in chunks:
        if one is None:
            parts += (deflater.flush(FULL_FLUSH), stored_block(b"between"))
            content.append(b"between")
        else:
            parts.append(deflater.compress(one))
            content.append(one)
    assert zlib.decompress(b"".join((*parts, deflater.flush())), -15) == b"".join(content)
