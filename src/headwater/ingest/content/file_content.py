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
import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.catalog.content import (
    Absence,
    NoContent,
    OpenContent,
    RecordedFile,
    RecordedResource,
    read_whole,
    strongest_digest,
)
from headwater.files.folder_marks import has_reserved
from headwater.ingest.content.resource_folder import OpenFile, ResourceFolder
from headwater.ingest.folder.signature import RACY, recorded_state
from headwater.ingest.folder.walking.path_filter import PathFilter
from headwater.spec.uris import quote_path

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EISDIR})
"""What the system says of a path where no file is that could be a resource."""


_plain = re.compile(r"[0-9A-Za-z_~\-][0-9A-Za-z_.~\-]*(?:/[0-9A-Za-z_~\-][0-9A-Za-z_.~\-]*)*").fullmatch
"""Matches what most relative URIs are: names that need no escapes and do not begin with a dot."""


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
        path = _taken(root, uri)
        if path is None:
            return NoContent(Absence.GONE, "no path of the set")
        try:
            file = folder.open(path)
        except OSError as cause:
            return self._missing(set_name, cause)
        # A link made or a mode changed alters the signature and no octet: then the digest tells.
        is_vouched = root.is_scanned and resource.memo != RACY and file.matches(resource.memo)
        if is_vouched or _may_be_as_recorded(file, resource, is_scanned=root.is_scanned):
            return OpenFile(file.descriptor, file.state, is_vouched=is_vouched)
        file.close()
        return NoContent(Absence.CHANGED)

    def read_each(self, set_name: str, resources: Sequence[RecordedResource]) -> list[bytes | NoContent]:
        """The octets of small files."""
        return [read_whole(self, set_name, one) for one in resources]

    def file_of(self, set_name: str, resource: RecordedResource) -> RecordedFile | None:
        """The file of a resource of a scanned folder that was at rest when it was read."""
        root, folder, state = self._roots[set_name], self._folders.get(set_name), recorded_state(resource.memo)
        if folder is None or not root.is_scanned or state is None or state[0] != resource.metadata.length:
            return None
        path = _taken(root, resource.uri)
        return None if path is None else RecordedFile(folder.path_of(path), state)

    def _missing(self, set_name: str, cause: OSError) -> NoContent:
        why = Absence.GONE if cause.errno in GONE else Absence.UNREADABLE
        if why is Absence.GONE and not os.path.isdir(self._roots[set_name].folder or ""):
            why = Absence.UNREADABLE  # a file system that is away says nothing of its files
        return NoContent(why, cause.strerror or "")


def _taken(root: ContentRoot, uri: str) -> bytes | None:
    """The path of the file with this relative URI; None when the set takes no such file."""
    path = _path_of(uri)
    if path is None or has_reserved(path):
        return None
    return path if root.paths is None or root.paths.takes(path) else None


def _path_of(uri: str) -> bytes | None:
    """The path of a file with this relative URI: whole names, none of which leads up. None when no file has it."""
    if _plain(uri):
        return uri.encode("ascii")
    path = unquote_to_bytes(uri)
    is_one = quote_path(path) == uri and b"\0" not in path and {b"", b".", b".."}.isdisjoint(path.split(b"/"))
    return path if is_one else None


def _may_be_as_recorded(file: OpenFile, resource: RecordedResource, *, is_scanned: bool) -> bool:
    """Whether the digest decides about a file that nothing else vouches for: it has the recorded length."""
    if is_scanned and strongest_digest(resource.metadata) is None:
        return False
    return resource.metadata.length in (None, file.octets)
