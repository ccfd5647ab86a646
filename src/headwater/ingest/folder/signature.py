"""The stat signature of a hashed file, kept in the catalog, so that an untouched file is never read again.

A signature is size, mtime, ctime and inode. It is trusted only when the file had been at rest for a moment before it
was read: a file system's clock moves in ticks, and a write in the tick of the read would leave the same signature (the
race that git's index knows as "racily clean"). A file read too soon gets a note that matches nothing: it is read again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import cast

from headwater.files.recorded_file import FileState

TICK_NS = 100_000_000
"""Longer than any kernel's timer tick (at most 10 ms), with a margin for the delay between clock and stamp."""

COARSE_TICK_NS = 2_100_000_000
"""For file systems that keep whole or even seconds (FAT, ext3, some network servers)."""

_LAYOUT = struct.Struct("<BIQQQQ")
_STATE = struct.Struct("<QQQQ")
_STATE_AT = _LAYOUT.size - _STATE.size
_VERSION = 1
_BITS = (1 << 64) - 1
_SECOND_NS = 1_000_000_000

RACY = b"\0"
"""The note of a file that was read too soon after it changed."""


def rules_mark(*parts: str) -> int:
    """A short mark of the settings that metadata depend on: files are read again when the settings change."""
    mark = 0
    for octet in "\0".join(parts).encode():
        mark = (mark * 0x01000193 ^ octet) & 0xFFFFFFFF  # FNV-1: small, stable across processes and versions
    return mark


def note(mark: int, stat: os.stat_result) -> bytes:
    """The note of a file in this state."""
    return pack(mark, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def pack(mark: int, size: int, mtime_ns: int, ctime_ns: int, inode: int) -> bytes:
    """The same from the stat's parts."""
    # Times before 1970 are negative, and times beyond 2262 need more than 64 bits: their low bits tell them apart.
    return _LAYOUT.pack(_VERSION, mark, size, mtime_ns & _BITS, ctime_ns & _BITS, inode)


def matches(memo: bytes, stat: os.stat_result) -> bool:
    """Whether a note is of a file in this state, whatever its mark."""
    size, mtime_ns, ctime_ns, inode = stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino
    state = _STATE.pack(size, mtime_ns & _BITS, ctime_ns & _BITS, inode)
    return memo[_STATE_AT:] == state and memo[0] == _VERSION


def settled_note(mark: int, state: Sequence[int], read_at_ns: int, changed_ns: int) -> bytes:
    """The note of a file that was read from `read_at_ns` on: RACY when it had changed within a tick before that.

    `state` is (size, mtime_ns, ctime_ns, inode); `changed_ns` is the ctime that counts: it moves with every write, and
    nobody can set it.
    """
    size, mtime_ns, ctime_ns, inode = state
    coarse = ctime_ns % _SECOND_NS == 0 and mtime_ns % _SECOND_NS == 0
    if changed_ns + (COARSE_TICK_NS if coarse else TICK_NS) > read_at_ns:
        return RACY
    return pack(mark, size, mtime_ns, ctime_ns, inode)


def recorded_state(memo: bytes) -> FileState | None:
    """Size, mtime and ctime (their low 64 bits, nanoseconds) and inode of a note; None for one that matches nothing."""
    if len(memo) != _LAYOUT.size or memo[0] != _VERSION:
        return None
    return cast("FileState", _STATE.unpack_from(memo, _STATE_AT))


def outline(memo: bytes) -> tuple[int, int, int] | None:
    """Size, mtime (its low 64 bits, nanoseconds) and inode that a note speaks of; None for one that matches nothing."""
    state = recorded_state(memo)
    return None if state is None else (state[0], state[1], state[3])


def is_outlined(memo: bytes, stat: os.stat_result, *, by_inode: bool) -> bool:
    """Whether a placed file is the one of a note: the same inode (`by_inode`) or a copy with its time; and its size."""
    found = outline(memo)
    if found is None or found[0] != stat.st_size:
        return False
    return (by_inode and found[2] == stat.st_ino) or found[1] == stat.st_mtime_ns & _BITS
