"""What is done to the files of one folder, in its order, and what of it a power loss may leave.

A recorder below the store, the catalog and the copy: it notes each file made, written, renamed, removed and synced,
through `os` and `io.open`, through SQLite's own way to its files, and through the flush of a whole file system. From
these notes any prefix is replayed as a disk may hold it after the power failed there: what was synced is there; of all
else any part may be missing, each operation by itself. That is less than most file systems promise, and all that POSIX
does.

- The octets of a file, its size and its time are safe once the file was synced after they were written.
- A name (made, renamed, removed) is safe once its folder was synced after that; a rename is two names.
- Octets that were not synced may be there, not be there, or be zeros, whatever the size and the time say.
"""

from __future__ import annotations

import builtins
import io
import itertools
import os
import random
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

SECTOR = 512
EVERYTHING = -1
"""The number of no file: what is synced when the whole file system is."""


class Op(NamedTuple):
    """One operation. `place` is what makes it safe: the file of octets, the folder of a name."""

    kind: str
    place: int
    name: str = ""
    file: int = 0
    octets: bytes | None = None
    offset: int = 0
    mtime_ns: int = 0


class Held(NamedTuple):
    """A file or a folder as it was when the recording began: safe."""

    octets: bytes | None
    mtime_ns: int
    names: dict[str, int]


class Disk:
    """The operations on `root` since `recording` began. The numbers of files are ours: one for each file ever made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ops: list[Op] = []
        self.told: list[str] = []
        self._number: dict[int, int] = {}
        self._fresh = itertools.count(1)
        self._before: dict[int, Held] = {}
        self._written: dict[int, tuple[int, tuple[int, int], bytes]] = {}
        self._top = self._scan(root)

    # what is told to the recorder

    @contextmanager
    def recording(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
        """Note what this process does to the folder, while the block lasts."""
        with monkeypatch.context() as patch:
            _listen(self, patch)
            shim = _Sqlite(self)
            try:
                yield self
            finally:
                shim.unregister()
                self.look()
                for descriptor, _, _ in self._written.values():
                    os.close(descriptor)
                self._written.clear()

    def mark(self, name: str) -> None:
        """What is said to somebody at this moment: all before it was acknowledged."""
        self.look()
        self._note(Op("mark", 0, name))

    def made(self, folder: Path, name: str, *, is_folder: bool = False, octets: bool = True) -> None:
        """A new file or folder has this name; of a file, its octets are watched from now on if `octets`."""
        found = os.stat(folder / name, follow_symlinks=False)
        number = self._number[found.st_ino] = next(self._fresh)
        self._before[number] = Held(None if is_folder else b"", found.st_mtime_ns, {})
        self._note(Op("mkdir" if is_folder else "create", self._known(folder), name, number))
        if octets and not is_folder:
            self._written[number] = (os.open(folder / name, os.O_RDONLY), (-1, -1), b"")

    def look(self) -> None:
        """Note what was written, since the last time, to files that were made through Python."""
        for number, (descriptor, seen, held) in list(self._written.items()):
            found = os.fstat(descriptor)
            now = (found.st_size, found.st_mtime_ns)
            if now != seen:
                octets = os.pread(descriptor, found.st_size, 0)
                if octets != held or now[1] != seen[1]:
                    self._note(Op("content", number, file=number, octets=octets, mtime_ns=found.st_mtime_ns))
                self._written[number] = (descriptor, now, octets)

    def within(self, folder: Path) -> bool:
        """Whether the folder is one that is watched."""
        with suppress(OSError):
            return os.stat(folder).st_ino in self._number
        return False

    def number(self, found: os.stat_result) -> int | None:
        """The number of a file or folder, or None when it is not watched."""
        return self._number.get(found.st_ino)

    def synced(self, number: int) -> None:
        """A file or a folder was synced, or with EVERYTHING the file system was."""
        self.look()
        self._note(Op("sync", number))

    def named(self, folder: Path, name: str, file: int) -> None:
        """A file that was there before has this name now."""
        self._note(Op("name", self._known(folder), name, file))

    def unnamed(self, folder: Path, name: str) -> None:
        """The name is gone."""
        self._note(Op("unname", self._known(folder), name))

    def wrote(self, number: int, offset: int, octets: bytes) -> None:
        """A part of a file was written."""
        self._note(Op("write", number, file=number, octets=octets, offset=offset))

    def cut(self, number: int, size: int) -> None:
        """A file was made shorter or longer."""
        self._note(Op("truncate", number, file=number, offset=size))

    def leave(self, number: int) -> None:
        """The octets of this file are told one write at a time by another."""
        if number in self._written:
            os.close(self._written.pop(number)[0])

    def _known(self, folder: Path) -> int:
        return self._number[os.stat(folder).st_ino]

    def _note(self, op: Op) -> None:
        self.ops.append(op)

    def _scan(self, path: Path) -> int:
        found = path.stat(follow_symlinks=False)
        number = self._number[found.st_ino] = next(self._fresh)
        if path.is_dir():
            names = {entry.name: self._scan(entry) for entry in path.iterdir()}
            self._before[number] = Held(None, found.st_mtime_ns, names)
        else:
            self._before[number] = Held(path.read_bytes(), found.st_mtime_ns, {})
        return number

    # what a power loss leaves

    def safe_from(self) -> list[int]:
        """For each operation, the index of the sync that makes it safe (beyond the end: none does)."""
        syncs: dict[int, list[int]] = {EVERYTHING: []}
        for at, op in enumerate(self.ops):
            if op.kind == "sync":
                syncs.setdefault(op.place, []).append(at)
        ends = len(self.ops)
        safe = []
        for at, op in enumerate(self.ops):
            later = [
                row[i]
                for row in (syncs.get(op.place, []), syncs[EVERYTHING])
                if (i := bisect_right(row, at)) < len(row)
            ]
            safe.append(min(later, default=ends))
        return safe

    def losses(self, count: int, seed: int) -> Iterator[Loss]:
        """So many power losses: every prefix in turn, each time with another part of what was not synced."""
        chance = random.Random(seed)
        safe = self.safe_from()
        prefixes = list(range(len(self.ops) + 1))
        chance.shuffle(prefixes)
        for number in range(count):
            upto = prefixes[number % len(prefixes)]
            share = (0.0, 1.0, 0.5, 0.9, 0.1)[number // len(prefixes) % 5 if number >= len(prefixes) else number % 5]
            yield Loss(self, upto, share, chance.randrange(1 << 30), safe)

    def last_losses(self, count: int, seed: int) -> Iterator[Loss]:
        """So many power losses after the last operation."""
        for number in range(count):
            yield Loss(self, len(self.ops), (0.0, 0.5, 0.9)[number % 3], seed + number, self.safe_from())


class Loss(NamedTuple):
    """The power fails after `upto` operations; of what was not synced about `share` had reached the disk."""

    disk: Disk
    upto: int
    share: float
    seed: int
    safe: list[int]

    def __repr__(self) -> str:
        last = self.disk.ops[self.upto - 1] if self.upto else None
        return f"power lost after {self.upto} operations ({last and last[:4]}), {self.share} kept, seed {self.seed}"

    def marks(self) -> list[str]:
        """What had been acknowledged."""
        return [op.name for op in self.disk.ops[: self.upto] if op.kind == "mark"]

    def boot(self) -> str:
        """A boot id that no machine had before."""
        return f"boot-{self.seed}"

    def leave(self, target: Path) -> Path:
        """Make `target` what the disk holds when the machine is up again."""
        chance = random.Random(self.seed)
        names = {number: dict(held.names) for number, held in self.disk._before.items()}
        octets = {number: bytearray(held.octets or b"") for number, held in self.disk._before.items()}
        times = {number: held.mtime_ns for number, held in self.disk._before.items()}
        for at, op in enumerate(self.disk.ops[: self.upto]):
            is_safe = self.safe[at] < self.upto
            if op.kind in ("mark", "sync"):
                continue
            if op.kind in ("create", "mkdir", "name", "unname"):
                if is_safe or chance.random() < self.share:
                    _rename(names[op.place], op)
                continue
            kept = is_safe or chance.random() < self.share
            if op.mtime_ns and (kept or chance.random() < 0.5):  # the time may be safe where the octets are not
                times[op.file] = op.mtime_ns
            _write(octets, op, kept, is_safe, chance)
        _build(target, self.disk._top, names, octets, times, self.disk._before)
        return target


def _rename(entries: dict[str, int], op: Op) -> None:
    if op.kind == "unname":
        entries.pop(op.name, None)
    else:
        entries[op.name] = op.file


def _write(octets: dict[int, bytearray], op: Op, kept: bool, is_safe: bool, chance: random.Random) -> None:
    held = octets[op.file]
    if op.kind == "truncate":
        if kept:
            del held[op.offset :]
            held.extend(bytes(op.offset - len(held)))
        return
    new = op.octets or b""
    if op.kind == "content":
        if kept and (is_safe or chance.random() < 0.8):
            held[:] = new
        elif chance.random() < 0.5:  # half of it, or its size alone
            half = chance.randrange(len(new) + 1)
            held[:] = new[:half] + (bytes(len(new) - half) if chance.random() < 0.5 else b"")
        return
    if not kept:
        return
    if not is_safe and len(new) > SECTOR and chance.random() < 0.3:  # torn: some of its sectors
        new = new[: chance.randrange(0, len(new), SECTOR)]
    if len(held) < op.offset:
        held.extend(bytes(op.offset - len(held)))
    held[op.offset : op.offset + len(new)] = new


def _build(
    path: Path,
    number: int,
    names: dict[int, dict[str, int]],
    octets: dict[int, bytearray],
    times: dict[int, int],
    kinds: dict[int, Held],
) -> None:
    if kinds[number].octets is None:
        path.mkdir()
        for name, below in names[number].items():
            _build(path / name, below, names, octets, times, kinds)
    else:
        path.write_bytes(octets[number])
        os.utime(path, ns=(times[number], times[number]))


# the recorder: Python


def _folder_of(path: Any, dir_fd: int | None) -> tuple[Path, str]:
    text = Path(os.fsdecode(path))
    if dir_fd is not None and dir_fd >= 0 and not text.is_absolute():
        text = Path(f"/proc/self/fd/{dir_fd}") / text
    return text.parent, text.name


def _listen(disk: Disk, patch: pytest.MonkeyPatch) -> None:
    """Put ourselves between Python and the folder."""
    plain = {
        name: getattr(os, name)
        for name in (
            "open",
            "mkdir",
            "rename",
            "replace",
            "link",
            "unlink",
            "remove",
            "rmdir",
            "fsync",
            "fdatasync",
            "sync",
        )
    }
    plain_open = io.open

    def made(path: Any, dir_fd: int | None, make: Any, *, is_folder: bool = False) -> Any:
        folder, name = _folder_of(path, dir_fd)
        watched = disk.within(folder)
        was_there = watched and os.path.lexists(folder / name)
        disk.look()
        result = make()
        if watched and not was_there and os.path.lexists(folder / name):
            disk.made(folder, name, is_folder=is_folder)
        return result

    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_CREAT:
            return plain["open"](path, flags, mode, dir_fd=dir_fd)  # type: ignore[no-any-return]
        return made(path, dir_fd, lambda: plain["open"](path, flags, mode, dir_fd=dir_fd))  # type: ignore[no-any-return]

    def io_open(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wxa"):
            return plain_open(file, mode, *rest, **more)
        return made(file, None, lambda: plain_open(file, mode, *rest, **more))

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        made(path, dir_fd, lambda: plain["mkdir"](path, mode, dir_fd=dir_fd), is_folder=True)

    def moved(kind: str, keep: bool) -> Any:
        def move(
            source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None, **more: Any
        ) -> None:
            (from_, old), (to, new) = _folder_of(source, src_dir_fd), _folder_of(target, dst_dir_fd)
            disk.look()
            file = disk.number(os.stat(from_ / old, follow_symlinks=False)) if disk.within(from_) else None
            plain[kind](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)
            if file is not None:
                disk.named(to, new, file)
                if not keep:
                    disk.unnamed(from_, old)

        return move

    def gone(kind: str) -> Any:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            folder, name = _folder_of(path, dir_fd)
            disk.look()
            watched = disk.within(folder)
            plain[kind](path, dir_fd=dir_fd)
            if watched:
                disk.unnamed(folder, name)

        return remove

    def synced(kind: str) -> Any:
        def sync(descriptor: Any) -> None:
            plain[kind](descriptor)
            where = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            number = disk.number(os.fstat(where))
            if number is not None:
                disk.synced(number)

        return sync

    def sync_all() -> None:
        disk.synced(EVERYTHING)

    for name, ours in {
        "open": open_, "mkdir": mkdir, "rename": moved("rename", False), "replace": moved("replace", False),
        "link": moved("link", True), "unlink": gone("unlink"), "remove": gone("remove"), "rmdir": gone("rmdir"),
        "fsync": synced("fsync"), "fdatasync": synced("fdatasync"), "sync": sync_all,
    }.items():  # fmt: skip
        patch.setattr(os, name, ours)
    patch.setattr(io, "open", io_open)
    patch.setattr(builtins, "open", io_open)


# the recorder: SQLite

_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL


class _Sqlite(apsw.VFS):
    """SQLite's way to its files, while it is registered; the WAL's shared memory is no file and is not kept."""

    _counter = itertools.count()

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        super().__init__(f"recorded-{next(self._counter)}", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        was_there = path is not None and os.path.lexists(path)
        file = _SqliteFile(self.disk, name, flags)
        if path is not None and self.disk.within(Path(path).parent):
            folder, name = Path(path).parent, Path(path).name
            if not was_there:
                self.disk.made(folder, name, octets=False)
            if flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _JOURNALS:
                file.folder = self.disk._known(folder)
            file.number = self.disk.number(os.stat(path))
            if file.number is not None:
                self.disk.leave(file.number)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:
        folder, name = Path(filename).parent, Path(filename).name
        super().xDelete(filename, syncdir)
        if self.disk.within(folder):
            self.disk.unnamed(folder, name)
            if syncdir:
                self.disk.synced(self.disk._known(folder))


class _SqliteFile(apsw.VFSFile):
    number: int | None = None
    folder: int | None = None
    """Of a journal or a WAL: SQLite syncs the folder, so that the name is safe, with the first sync of the file."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        super().xWrite(data, offset)
        if self.number is not None:
            self.disk.wrote(self.number, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        if self.number is not None:
            self.disk.cut(self.number, size)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self.number is not None:
            self.disk.synced(self.number)
            if self.folder is not None:
                self.disk.synced(self.folder)
                self.folder = None
