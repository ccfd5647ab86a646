"""Reads the content of resources that lie in files below a root: of scanned folders, and of push sets with a root.

A file of a scanned folder is the recorded one while its stat signature is that of the catalog's memo, as for a scan;
one that was read too soon after it changed has no signature yet, and is compared by its digest. So are files that a
provider announces, who says their length and digests: the length is compared here, and the digest by whoever reads
(`catalog.content.recorded_blocks`). A resource with an address of its own, or whose set has no root, lies elsewhere:
nothing is fetched.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.content import Absence, NoContent, OpenContent, RecordedResource, strongest_digest
from headwater.files.folder_marks import has_reserved, is_plain, is_state, leads_inside
from headwater.files.hashing import state_of
from headwater.files.nofollow import READ_FLAGS, FileState, open_unlinked
from headwater.ingest.folder.comparison import RACY, matches
from headwater.ingest.folder.walk import PathFilter
from headwater.spec.uris import quote_path

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class ResourceFolder:
    """The folder of one set."""

    def __init__(self, folder: str) -> None:
        self._folder = os.fsencode(folder)
        self._has_links = os.path.realpath(self._folder) != os.path.abspath(self._folder)
        """Whether a name of the folder's own path is a link; it may lead elsewhere at any time."""

    def open(self, path: bytes) -> OpenFile:
        """Open the regular file at the relative `path`, which lies below the folder, links resolved.

        Raises OSError; ENOENT for what is no regular file, leads out of the folder, or is the state of a command. A
        FIFO or a device is never waited for.
        """
        if has_reserved(path):
            raise _absent()
        descriptor, is_linked = -1, self._has_links
        if not is_linked:  # one call for a file that no link leads to, as nearly all are
            try:
                descriptor = open_unlinked(self._folder + b"/" + path, READ_FLAGS)
            except OSError as cause:
                if cause.errno != errno.ELOOP:
                    raise
                is_linked = True
        folder = os.open(self._folder, _FOLDER) if is_linked else -1
        try:
            if is_linked:
                descriptor = os.open(path, READ_FLAGS, dir_fd=folder)
                below = _real_path(folder, self._folder).rstrip(b"/") + b"/"
                above = real = _real_path(descriptor, self._folder + b"/" + path)  # the kernel says: no race is left
                while (above := os.path.dirname(above)).startswith(below):
                    if is_state(above):
                        raise _absent()
                if not real.startswith(below):
                    raise _absent()
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise _absent()
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise
        finally:
            if folder >= 0:
                os.close(folder)
        return OpenFile(descriptor, state)


def _absent() -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


class OpenFile(msgspec.Struct, gc=False):
    """An open file and its state when it was opened. `is_vouched`: it is known to be in the recorded state."""

    descriptor: int
    state: os.stat_result
    is_vouched: bool = False

    @property
    def key(self) -> FileState:
        """What tells the file in this state from every other."""
        return state_of(self.state)

    @property
    def octets(self) -> int:
        """Its size."""
        return self.state.st_size

    def is_unchanged(self) -> bool:
        """Whether the file still is as it was when it was opened."""
        now, then = os.fstat(self.descriptor), self.state
        is_same = now.st_ctime_ns == then.st_ctime_ns and now.st_mtime_ns == then.st_mtime_ns
        return is_same and now.st_size == then.st_size and now.st_ino == then.st_ino

    def matches(self, memo: bytes) -> bool:
        """Whether the file is the one that ingest hashed, by the signature in its memo."""
        return matches(memo, self.state)

    def read(self, start: int, octets: int) -> bytes:
        """Up to so many octets from `start`."""
        return os.pread(self.descriptor, octets, start)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


if sys.platform == "linux":

    def _real_path(descriptor: int, path: bytes) -> bytes:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)

else:

    def _real_path(descriptor: int, path: bytes) -> bytes:
        real = os.path.realpath(path)
        ours, theirs = os.fstat(descriptor), os.stat(real)
        return real if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino) else b""


GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EISDIR})
"""What the system says of a path where no file is that could be a resource."""


class ContentRoot(msgspec.Struct, frozen=True):
    """Where the resources of one set lie: `prefix` is the address that relative URIs are below.

    `folder` None: on another server. `paths` are those that the set takes. `is_scanned`: memos are stat signatures.
    """

    prefix: str
    folder: str | None = None
    paths: PathFilter | None = None
    is_scanned: bool = False


class FileContentReader:
    """The content of the sets with these roots."""

    def __init__(self, roots: Mapping[str, ContentRoot]) -> None:
        self._roots = roots
        self._folders = {name: ResourceFolder(one.folder) for name, one in roots.items() if one.folder is not None}

    def open(self, set_name: str, resource: RecordedResource) -> OpenContent | NoContent:
        """The file of a resource when it is as it was recorded."""
        root, uri = self._roots[set_name], resource.uri
        if "://" in uri:
            return NoContent(Absence.ELSEWHERE, uri)
        if (folder := self._folders.get(set_name)) is None:
            return NoContent(Absence.ELSEWHERE, root.prefix + uri)
        path = unquote_to_bytes(uri)
        is_path = (len(path) == len(uri) and is_plain(path)) or (quote_path(path) == uri and leads_inside(path))
        if not is_path or not (root.paths is None or root.paths.takes(path)):
            return NoContent(Absence.GONE, "no path of the set")
        try:
            file = folder.open(path)
        except OSError as cause:
            # a file system that is away says nothing of its files
            is_gone = cause.errno in GONE and os.path.isdir(root.folder or "")
            return NoContent(Absence.GONE if is_gone else Absence.UNREADABLE, cause.strerror or "")
        # A link made or a mode changed alters the signature and no octet: then the digest tells, of one of that length.
        file.is_vouched = root.is_scanned and resource.memo != RACY and file.matches(resource.memo)
        if file.is_vouched or (
            resource.metadata.length in (None, file.octets)
            and not (root.is_scanned and strongest_digest(resource.metadata) is None)
        ):
            return file
        file.close()
        return NoContent(Absence.CHANGED)
