"""What the ingest of DIT-ES documents notes beside a resource in the catalog: its memo, never published."""

from __future__ import annotations

import msgspec

from headwater.typed_decoding import from_msgpack

_MARK = b"D1"
NEVER_US = -(1 << 63)


class Note(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`ahead`: the state is applied, its change document has not come. `at_us`: time of the newest change applied.

    `kept` are the fields that the protocol does not know, as JSON (DIT-A19). `before_us`: a state of an older file has
    taken the place of others, and one with a `lastmod` up to then is from before it; 0 where `lastmod` alone tells.
    """

    ahead: bool = False
    at_us: int = NEVER_US
    kept: bytes = b""
    before_us: int = 0

    def memo(self) -> bytes:
        """The note as the catalog keeps it."""
        return b"" if self == _NONE else _MARK + msgspec.msgpack.encode(self)


_NONE = Note()


def read_note(memo: bytes) -> Note:
    """The note that a memo holds; another ingest's memo is none of ours."""
    if not memo.startswith(_MARK):
        return _NONE
    try:
        return from_msgpack(memo[len(_MARK) :], Note)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _NONE
