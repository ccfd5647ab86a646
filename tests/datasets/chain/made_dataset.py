"""A dataset of any size in one file of N-Quads in no order, and its changes: all lines are of one length.

So a change of some thousand lines costs a copy of the file and as many writes into it, and nothing of it is held in
memory: which statement a line has is read from the line.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_WIDTH: Final = 120
_STEP: Final = 7_919
"""A prime: line after line, the subjects are far apart."""
_KINDS: Final = 8
_NUMBER: Final = re.compile(rb"<http://example\.org/(\d+)> <http://example\.org/p(\d)> ")


def statement(number: int, version: int) -> bytes:
    """A statement in canonical form: the `number` decides subject, property, kind of object and graph."""
    subject, kind = divmod(number, _KINDS)
    graph = b"" if kind % 4 == 0 else b" <http://example.org/g%d>" % (kind % 3)
    head = b"<http://example.org/%09d> <http://example.org/p%d> " % (subject, kind)
    room = _WIDTH - len(head) - len(graph) - len(b" .\n")
    return head + _value(kind % 5, subject, version, room) + graph + b" .\n"


def _value(form: int, subject: int, version: int, room: int) -> bytes:
    """An object of so many octets."""
    shared = subject * _STEP % 9_973
    if form == 1:
        return b"<http://example.org/x/%0*d>" % (room - 23, shared * 1000 + version)
    if form == 2:
        return b'"%0*d"^^<http://example.org/t>' % (room - 26, version)
    text = (b'a \\"%d\\" of %d: %d' if form else b"Title %d of %d: %d") % (shared, version, subject)
    tag = b"@de" if form == 3 else b""
    return b'"' + text.ljust(room - len(tag) - 2, b".") + b'"' + tag


def make_dataset(path: Path, quads: int) -> None:
    """Write a dataset of so many statements."""
    with path.open("wb", 1 << 20) as file:
        for line in range(quads):
            file.write(statement(line * _STEP % quads, 0))


def change_dataset(path: Path, version: int, lines: int) -> None:
    """Replace the file, by a rename, by one from which it differs in about so many lines.

    Of the statements that go, a fifth comes back as none; of those that come, a fifth has a subject of its own, and a
    tenth makes the dataset longer.
    """
    chance = random.Random(version)
    aside = path.with_name(f".{path.name}.next")
    shutil.copyfile(path, aside)
    count = path.stat().st_size // _WIDTH
    new = 1_000_000_000 + version * 1_000_000
    with aside.open("r+b") as file:
        for place in chance.sample(range(count), min(lines // 2, count // 4)):
            file.seek(place * _WIDTH)
            found = _NUMBER.search(file.read(_WIDTH))
            assert found is not None
            number = int(found[1]) * _KINDS + int(found[2])
            if place % 5 == 0:
                number, new = new, new + 1
            file.seek(place * _WIDTH)
            file.write(statement(number, version))
        file.seek(0, os.SEEK_END)
        for number in range(new, new + lines // 20):
            file.write(statement(number, version))
    aside.replace(path)


def sorted_digest(path: Path, folder: Path) -> str:
    """The SHA-256 of the lines in order, by other programs."""
    script = 'set -o pipefail; sort -u -S 512M -T "$1" "$0" | sha256sum'
    command = ["bash", "-c", script, str(path), str(folder)]
    done = subprocess.run(command, env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.PIPE, check=True)
    return done.stdout.split()[0].decode()
