"""Makes members of packages out of small files: the publisher does, and processes of its pool do.

A file is taken only in the state that the catalog records, which is looked at after it was read: what has changed
before or meanwhile is in another state then. Everything else is for the publisher to look at: large files, files that
links lead to, octets of which only the digest tells what they are. Members are written to where the publisher has kept
room for them, in a file that it shares: their octets never pass through it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from headwater.files.nofollow import OpenFolder
from headwater.files.recorded_file import FileState, read_in_state
from headwater.packages.zip_format import LOCAL
from headwater.packages.zip_writer import PackedMember, packed_member

FileMember = tuple[bytes, FileState, str, bool]
"""A file that is to be a member: its absolute path and recorded state, the name of the member, whether to deflate."""

MemberJob = tuple[int, int, list[FileMember | None]]
"""An open file, the place in it that is kept for the members, and the files to make them of."""

MadeMembers = tuple[int, list[PackedMember | None]]
"""What came of a job: 0, or the error number of writing; of each file its member, or None for what the publisher has to
look at. The members lie one behind the other."""


def room_for(file: FileMember) -> int:
    """How many octets the member takes at most: deflated, it is not longer."""
    return LOCAL.size + len(file[2].encode()) + file[1][0]


def make_members(job: MemberJob) -> MadeMembers:
    """Make the members and write them to their place."""
    descriptor, place, files = job
    members: list[PackedMember | None] = []
    pieces: list[bytes] = []
    with OpenFolder() as folder:
        for file in files:
            content = None if file is None else read_in_state(folder, file[0], file[1])
            if file is None or content is None:
                members.append(None)
                continue
            member, head, body = packed_member(file[2], content, deflate=file[3])
            members.append(member)
            pieces += (head, body)
    try:
        _write(descriptor, b"".join(pieces), place)
    except OSError as cause:
        return cause.errno or errno.EIO, []
    return 0, members


def _write(descriptor: int, octets: bytes, place: int) -> None:
    view = memoryview(octets)
    while view:
        written = os.pwrite(descriptor, view, place)
        view, place = view[written:], place + written


def member_maker(_settings: Any) -> Callable[[MemberJob], MadeMembers]:
    """What a process of the pool does."""
    return make_members
