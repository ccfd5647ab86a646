"""The worker process of the hash pool: reads blocks of paths from standard input, writes their digests to its output.

It imports four modules of the standard library and nothing else, so that it is started in a few milliseconds. Both
directions carry values of `marshal` behind their length; both ends are the same interpreter.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

_CHUNK = 1 << 18
_LENGTH = 4
_MOST_OCTETS = 1 << 26


def hash_files(
    root: bytes, files: list[tuple[bytes, tuple[str, ...]]]
) -> list[tuple[bytes, int | None, int, tuple[str, ...]]]:
    """Hash files below `root`, each by its path and hashlib's names of algorithms.

    Of each: its path, its size in octets (None: there is no plain file to be read), its time of change in nanoseconds,
    and the hex digests in the order of the algorithms. Without algorithms the file is not read.
    """
    return [(path, *_hash_file(root, path, names)) for path, names in files]


def _hash_file(root: bytes, path: bytes, names: tuple[str, ...]) -> tuple[int | None, int, tuple[str, ...]]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(root + b"/" + path, flags)
    except OSError:
        return None, 0, ()
    try:
        found = os.fstat(descriptor)
        if (found.st_mode & 0o170000) != 0o100000:
            return None, 0, ()
        if not names:
            return found.st_size, found.st_mtime_ns, ()
        octets, hexes = digests_of(descriptor, [getattr(hashlib, name) for name in names])
        return octets, found.st_mtime_ns, hexes
    except OSError:
        return None, 0, ()
    finally:
        os.close(descriptor)


def digests_of(descriptor: int, hashers: list[Callable[..., Any]]) -> tuple[int, tuple[str, ...]]:
    """The number of octets that can be read from an open file, and their hex digests, from one reading."""
    data = os.read(descriptor, _CHUNK)
    if len(data) < _CHUNK and not (more := os.read(descriptor, _CHUNK)):
        return len(data), tuple([hasher(data).hexdigest() for hasher in hashers])
    elif len(data) < _CHUNK:
        data += more
    running = [hasher() for hasher in hashers]
    octets = 0
    while data:
        octets += len(data)
        for one in running:
            one.update(data)
        data = os.read(descriptor, _CHUNK)
    return octets, tuple([one.hexdigest() for one in running])


def send(stream: IO[bytes], value: Any) -> None:
    """Write one value behind its length."""
    octets = marshal.dumps(value)
    stream.write(len(octets).to_bytes(_LENGTH, "big") + octets)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read what `send` wrote; raises EOFError where the other end is gone, ValueError for what `send` did not write."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        raise EOFError
    if (length := int.from_bytes(head, "big")) > _MOST_OCTETS:
        raise ValueError("no length of a block")
    octets = stream.read(length)
    if len(octets) < length:
        raise EOFError
    return marshal.loads(octets)  # noqa: S302 (our own process wrote it)


def main() -> None:
    """Hash blocks below the folder that the command line names, until there are no more."""
    root = os.fsencode(sys.argv[1])
    try:
        while True:
            send(sys.stdout.buffer, hash_files(root, receive(sys.stdin.buffer)))
    except EOFError:
        pass


if __name__ == "__main__":
    main()
