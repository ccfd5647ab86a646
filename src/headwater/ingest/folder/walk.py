"""The folder of a set, and a walk over its files in the order of their relative URIs.

Siblings are sorted by their percent-encoded name, folders with a slash behind it; depth first that is the order of
whole URIs, so the walk can be merged with the catalog's sorted resources without holding either. Symbolic links are
followed inside the folder, never out of it; loops are broken. A folder is listed by a path in which no name is a link,
so one that is exchanged for a link meanwhile leads nowhere. Names are octets: nothing is decoded that could fail.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.copy_state import FOLDER, STATE
from headwater.errors import HeadwaterError
from headwater.files.file_copies import LINK
from headwater.files.folder_marks import has_reserved, is_reserved, is_state, is_tree
from headwater.files.media_types import MediaTypes
from headwater.files.nofollow import open_unlinked
from headwater.files.patterns import Selection
from headwater.quantities import DEFAULT_SHARE
from headwater.spec.uris import quote_path


def topmost(paths: Iterable[bytes]) -> list[bytes]:
    """The paths without those that lie below another of them, in order."""
    every = set(paths)
    return sorted(path for path in every if not any(folder in every for folder in above(path)))


def above(path: bytes) -> Iterator[bytes]:
    """The folders above a relative path, nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


_STATE = os.fsencode(f"/{FOLDER}/{STATE}")


def is_copy_of(folder: bytes, base_url: str) -> bool:
    """Whether a folder is a copy of a set of the source at this base URL. A copy that cannot be read is none."""
    if not os.path.lexists(folder + _STATE):
        return False
    from headwater.copy_state import CopyStateReader, copied_sets  # few folders have copies in them

    try:
        with closing(CopyStateReader(os.fsdecode(folder))) as state, state.read() as t:
            return any(one.identity.startswith(base_url.rstrip("/") + "/") for one in copied_sets(t))
    except HeadwaterError:
        return False


class PathFilter:
    """The set's settings: the selection, and what is never published (real paths, as `Walk` takes them)."""

    def __init__(self, root: bytes, selection: Selection, avoid: Iterable[bytes] = ()) -> None:
        self._selection = selection
        self._root = root
        self._below = below = os.path.realpath(root).rstrip(b"/") + b"/"
        self._avoid = tuple(one[len(below) :] + b"/" for one in avoid if one.startswith(below))

    def takes(self, relative: bytes) -> bool:
        """Whether a file at this relative path would belong to the set."""
        if (relative + b"/").startswith(self._avoid):
            return False
        if has_reserved(relative):
            return False
        selection = self._selection.current()
        if selection.marks:  # also of folders where links of the path lead
            real = os.path.realpath(os.path.join(self._root, relative)).removeprefix(self._below)
            folders = {b"", *above(relative), *above(real)}
            if any(has_mark(os.path.join(self._root, one), selection.marks) for one in folders):
                return False
        if selection.everything and (selection.hidden or b"/." not in b"/" + relative):
            return True
        return all(selection.enters(folder) for folder in above(relative)) and selection.takes(relative)


def has_mark(folder: bytes, marks: Iterable[bytes]) -> bool:
    """Whether a folder contains something of one of these names."""
    return any(os.path.lexists(os.path.join(folder, one)) for one in marks)


LINK_DEPTH = 8
"""So many folder links are followed one below the other: a few folders that all link to each other make a forest."""

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DESCRIPTORS = b"/proc/self/fd/%d" if os.path.isdir("/proc/self/fd") else None
_DOT = ord(".")
_GONE = (errno.ENOENT, errno.ENOTDIR)
_PLAIN = re.compile(rb"[A-Za-z0-9._~/-]+\Z")


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file of the set: its relative URI, the path to read it at (no link in it below the root), its state."""

    uri: str
    path: bytes
    stat: os.stat_result


class UnreadableEntry(msgspec.Struct, frozen=True, gc=False):
    """What lies at `uri`, and below it when it is a folder, cannot be looked at. A folder's has a slash at its end."""

    uri: str
    path: bytes
    error: str


Warn = Callable[[str, str, bytes], None]  # is told of something that is left out: the rule or code, why, and its path
WalkEntry = FileEntry | UnreadableEntry


class RootFault(Exception):
    """The folder itself cannot be walked; the cause tells why."""


def quote(name: bytes) -> str:
    """The percent-encoded form of one name or relative path."""
    return name.decode("ascii") if _PLAIN.match(name) else quote_path(name)


def path_of(uri: str) -> bytes:
    """The octets that a relative URI of ours stands for."""
    return unquote_to_bytes(uri) if "%" in uri else uri.encode("ascii")


@contextmanager
def listing(folder: bytes) -> Iterator[list[os.DirEntry[bytes]]]:
    """What a folder lists; good within the block. Raises OSError; ELOOP for a link."""
    descriptor = open_unlinked(folder, _LIST)
    try:
        with os.scandir(_DESCRIPTORS % descriptor if _DESCRIPTORS else folder) as entries:
            yield list(entries)
    finally:
        os.close(descriptor)


class _Frame(msgspec.Struct):
    """One folder of the descent: where it really is, what its URIs begin with, names still to come (last first).

    `keys` is None until the folder is listed, which a look at a single path never needs.
    """

    path: bytes
    prefix: str = ""
    relative: bytes = b""
    links: int = 0
    keys: list[str] | None = None


def _leads_to_folder(one: os.DirEntry[bytes]) -> bool:
    with suppress(OSError):  # a link into itself, or behind a closed door: whoever looks at it is told why
        return one.is_dir()
    return False


class Walk:
    """Looks at one folder. `avoid` are real paths of what is never published: folders of ours (our state, what we
    publish) and files, these also by other names (hard links).

    Copies of the source at `base_url` are not entered either.
    """

    def __init__(
        self,
        root: bytes,
        selection: Selection,
        *,
        avoid: Iterable[bytes] = (),
        base_url: str | None = None,
        warn: Warn = lambda *_told: None,
    ) -> None:
        self._selection = selection
        self._warn = warn
        self._avoid = frozenset(avoid)
        self._own: set[tuple[int, int]] = set()
        for one in self._avoid:
            with suppress(OSError):
                found = os.stat(one)
                self._own |= set() if stat.S_ISDIR(found.st_mode) else {(found.st_dev, found.st_ino)}
        self._inodes = {inode for _device, inode in self._own}
        self._names = set(map(os.path.basename, self._avoid))
        self._hidden_count = 0
        self._base_url = base_url
        try:
            self._root = os.path.realpath(root, strict=True)
            self.state = os.stat(self._root)
        except OSError as cause:
            raise RootFault from cause
        if not stat.S_ISDIR(self.state.st_mode):
            raise RootFault from NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._below = self._root.rstrip(b"/") + b"/"
        if selection.marks and has_mark(self._root, selection.marks):
            self._selection = Selection(exclude=("*",))

    def everything(self) -> Iterator[WalkEntry]:
        """Every file of the folder. Raises RootFault when the folder itself cannot be listed."""
        root = _Frame(self._root)
        try:
            root.keys = self._list(self._root)
        except OSError as cause:
            raise RootFault from cause
        yield from self._descend([root])
        if self._hidden_count:
            many = f"{self._hidden_count:,} files and folders with names that begin with a dot are"
            one = "one file or folder with a name that begins with a dot is"
            self._warn("HW-ING-18", f"{many if self._hidden_count > 1 else one} left out", self._root)

    def at(self, relative: bytes) -> Iterator[WalkEntry]:
        """The file at `relative`, or the files below it; nothing when the set has nothing there.

        Every folder above it is judged as in a walk from the root.
        """
        *above, last = parts = relative.split(b"/")
        if any(part in (b"", b".", b"..") for part in parts) or b"\0" in relative:
            return  # no name in a folder, and no way out of it
        if not self._selection.hidden and any(part.startswith(b".") for part in parts):
            return
        frames = [_Frame(self._root)]
        for name in above:
            depth = len(frames)
            yield from self._enter(frames[-1], quote(name) + "/", frames)
            if len(frames) == depth:
                return
        frame = frames[-1]
        path = os.path.join(frame.path, last)
        try:
            mode = os.lstat(path).st_mode
            if self._is_our_file(path):
                return
            is_folder = stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and os.path.isdir(path))
        except OSError as cause:
            yield from self._failed(frame.prefix + quote(last), path, cause)
            return
        frame.keys = [quote(last) + "/" if is_folder else quote(last)]
        yield from self._descend(frames)

    def still_there(self) -> bool:
        """Whether the root is the folder that it was when this walk began (not unmounted, not replaced)."""
        try:
            now = os.stat(self._root)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self.state.st_dev, self.state.st_ino)

    def _list(self, folder: bytes) -> list[str]:
        """The keys in a folder, last first. Raises OSError; ELOOP for a link."""
        with listing(folder) as listed:
            names = [one.name for one in listed]
            if (
                (not self._selection.hidden and b"/." in b"/" + b"/".join(names))
                or any(map(is_reserved, names))
                or not self._names.isdisjoint(names)
                or not self._inodes.isdisjoint([one.inode() for one in listed])
            ):
                listed = [one for one in listed if self._is_for_others(folder, one)]
                names = [one.name for one in listed]
            together = b"/".join(names)  # one look at all of them tells that none needs to be encoded
            quoted = together.decode("ascii").split("/") if _PLAIN.match(together) else list(map(quote, names))
            keys = [
                key if one.is_file(follow_symlinks=False) or not _leads_to_folder(one) else key + "/"
                for key, one in zip(quoted, listed, strict=True)
            ]
        keys.sort(reverse=True)
        return keys

    def _is_for_others(self, folder: bytes, one: os.DirEntry[bytes]) -> bool:
        """Whether what is listed is not left out for its name, nor because this source needs it itself."""
        is_named = one.name in self._names or is_reserved(one.name)
        if one.name[0] == _DOT and not is_named and not self._selection.hidden:
            self._hidden_count += 1
            return False
        return not (is_named or one.inode() in self._inodes) or not self._is_our_file(folder + b"/" + one.name)

    def _is_our_file(self, path: bytes) -> bool:
        """Whether what lies here is no folder, and ours: then it is left out, and that is said."""
        try:
            found = os.lstat(path)
        except OSError:
            return False
        if stat.S_ISDIR(found.st_mode):
            return False
        if is_reserved(os.path.basename(path)):
            text = "left out: the name .headwater, in any spelling, is for the state of Headwater commands"
            self._warn("HW-ING-15", text, path)
            return True
        if path not in self._avoid and (found.st_dev, found.st_ino) not in self._own:
            return False
        text = "left out: the source itself needs this file (configuration, tokens, catalog)"
        self._warn("HW-ING-17", text, path)
        return True

    def _descend(self, frames: list[_Frame]) -> Iterator[WalkEntry]:
        bottom, everything, lstat = len(frames), self._selection.everything, os.lstat
        while len(frames) >= bottom:
            frame = frames[-1]
            if frame.keys is None:
                try:
                    frame.keys = self._list(frame.path)
                except OSError as cause:
                    frames.pop()
                    if cause.errno == errno.ELOOP:  # it was a folder a moment ago: judged by the next look
                        yield UnreadableEntry(frame.prefix, frame.path, "it has just become a link")
                    else:
                        yield from self._failed(frame.prefix, frame.path, cause)
                    continue
            keys, base, prefix = frame.keys, frame.path + b"/", frame.prefix
            while keys and keys[-1][-1] != "/":
                key = keys.pop()
                if everything:  # nearly every file of nearly every folder: no more is done for it than must be
                    path = base + path_of(key)
                    try:
                        found = lstat(path)
                    except OSError:
                        found = None
                    if found is not None and stat.S_ISREG(found.st_mode):
                        yield FileEntry(prefix + key, path, found)
                        continue
                yield from self._file(frame, key)
            if keys:
                yield from self._enter(frame, keys.pop(), frames)
            else:
                frames.pop()

    def _enter(self, frame: _Frame, key: str, frames: list[_Frame]) -> Iterator[UnreadableEntry]:
        """Push a frame for the folder `key` unless it is left out or cannot be looked at."""
        name = path_of(key[:-1])
        relative = frame.relative + name
        if not self._selection.enters(relative):
            return
        path = os.path.join(frame.path, name)
        links = frame.links
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                links, real = links + 1, self._inside(path)
                if real is None:
                    return
                if any(frame.path == real for frame in frames) or links > LINK_DEPTH:
                    text = "a link to a folder above it: Headwater does not follow it"
                    self._warn("HW-ING-12", text, path)
                    return
                if self._is_ours(real):
                    return
                path = real
        except OSError as cause:
            yield from self._failed(frame.prefix + key, path, cause)
            return
        marks = self._selection.marks
        if path in self._avoid or (marks and has_mark(path, marks)):
            return
        if is_state(path) or is_tree(path):
            self._leave_ours(path)
        elif self._base_url is not None and is_copy_of(path, self._base_url):
            self._warn("HW-ING-16", "a copy of this source is left out of it", path)
        else:
            frames.append(_Frame(path, frame.prefix + key, relative + b"/", links))

    def _is_ours(self, real: bytes) -> bool:
        """Whether what a link leads to lies in a folder that is not entered."""
        if any(real.startswith(avoided + b"/") for avoided in self._avoid):
            return True
        folder = os.path.dirname(real)
        while folder.startswith(self._below):
            if has_mark(folder, self._selection.marks):
                return True
            if is_state(folder) or is_tree(folder):
                self._leave_ours(folder)
                return True
            folder = os.path.dirname(folder)
        return False

    def _leave_ours(self, path: bytes) -> None:
        what = "a folder with the state of a Headwater command" if is_state(path) else "the output of `publish`"
        self._warn("HW-ING-15", f"{what} is left out", path)

    def _inside(self, path: bytes) -> bytes | None:
        real = os.path.realpath(path, strict=True)
        if real == self._root or real.startswith(self._below):
            return real
        self._warn("HW-ING-11", "a link that leads out of the folder is not followed", path)
        return None

    def _file(self, frame: _Frame, key: str) -> Iterator[WalkEntry]:
        name = path_of(key)
        if not self._selection.everything and not self._selection.takes(frame.relative + name):
            return
        path = frame.path + b"/" + name
        uri = frame.prefix + key
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                real = self._inside(path)
                if real is None or self._is_ours(real) or self._is_our_file(real):
                    return
                path = real
                found = os.lstat(path)
        except OSError as cause:
            yield from self._failed(uri, path, cause)
            return
        if stat.S_ISREG(found.st_mode):
            yield FileEntry(uri, path, found)
        elif not stat.S_ISDIR(found.st_mode):  # a folder that has just taken the file's place is seen next time
            self._warn("HW-ING-13", "a pipe, socket or device is left out", path)

    def _failed(self, uri: str, path: bytes, cause: OSError) -> Iterator[UnreadableEntry]:
        if cause.errno == errno.ELOOP:
            self._warn("HW-ING-12", "a link that leads to itself: Headwater does not follow it", path)
        elif cause.errno not in _GONE:
            yield UnreadableEntry(uri, path, cause.strerror or str(cause))


class CanonicalHashes(msgspec.Struct, frozen=True, kw_only=True):
    """RDF documents are stated with the hash of their canonical N-Quads, relative IRIs resolved below `prefix`; where
    it `replaces` digests and length, these are not stated: the octets that are served vary."""

    prefix: str
    replaces: bool = False


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is a set: where it is, which files of it belong, how they are published.

    `avoid` are real paths of what is never published: folders (state, published tree), and files that the source needs
    itself, wherever these lie. Nor are copies of the source at `base_url`. `place` is the folder in which every file of
    the set gets its place, as `place_mode` (link or copy) says; None when files are served from where they are.
    `uri_prefix_length` is the length of what is put before a relative URI. `processes` read files beside this one
    (None: one for each core). `canonical`: by what RDF documents are stated; `types`: which media types are given. A
    file that was written to less than `settle_seconds` ago, and may be open for writing, is left as it is published.
    """

    root: bytes
    selection: Selection = msgspec.field(default_factory=Selection)
    algorithms: tuple[str, ...] = ("md5", "sha-256")
    max_delete: float = DEFAULT_SHARE
    avoid: tuple[bytes, ...] = ()
    base_url: str | None = None
    place: bytes | None = None
    place_mode: str = LINK
    uri_prefix_length: int = 0
    processes: int | None = None
    canonical: CanonicalHashes | None = None
    types: MediaTypes | None = None
    settle_seconds: float = 0.0

    def walk(self, warn: Warn = lambda *_told: None) -> Walk:
        """A walk of the folder. Raises RootFault, with the fault of the selection as its cause where that has one."""
        selection = self.selection.current()
        if (fault := self.selection.fault) is not None:
            warn(fault.code, f"{fault.what}: nothing that is new is published", os.fsencode(fault.where or ""))
            raise RootFault from fault
        return Walk(self.root, selection, avoid=self.avoid, base_url=self.base_url, warn=warn)
