"""Sorts any number of lines: few in memory, more by sort(1)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from headwater.errors import UsageFault
from headwater.processes.pool import widen
from headwater.rdf.faults import BOUNDS, RdfBounds
from headwater.rdf.statements import BLOCK, line_blocks

_PLACES = "/usr/bin:/bin"
"""Where sort(1) is looked for, whatever PATH says."""
_MEMORY = "64M"
"""What sort(1) holds in memory; of long lines, one for each of the files that it merges."""
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EACCES)


class LineSorter:
    """Takes lines in blocks, and gives them sorted bytewise, each once. The caller closes it.

    What does not fit into memory lies in the folder `scratch`, which the caller removes. Raises OSError as writing to a
    file there does.
    """

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._scratch = scratch
        self._bounds = bounds
        self._held: list[bytes] = []
        self._octets = 0
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, block: bytes) -> None:
        """Take whole lines, each ended by LF, without CR."""
        if self._process is not None:
            self._send(block)
        elif block:
            self._held.append(block)
            self._octets += len(block)
            if self._octets > self._bounds.run_octets:
                self._process = self._started()
                while self._held:
                    self._send(self._held.pop())

    def blocks(self) -> Iterator[bytes]:
        """All lines that were taken, sorted, each once, in blocks. Once only."""
        if self._process is None:
            lines = sorted(set(b"".join(self._held).splitlines(keepends=True)))
            if lines:
                yield b"".join(lines)
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        unbounded = replace(self._bounds, line_octets=self._bounds.octets)
        yield from line_blocks(iter(lambda: process.stdout.read(BLOCK), b""), "", unbounded)  # type: ignore[union-attr]
        if process.wait():
            raise self._fault(process)

    def lines(self) -> Iterator[bytes]:
        """The same line by line, each with its LF."""
        for block in self.blocks():
            yield from block.splitlines(keepends=True)

    def close(self) -> None:
        """End the process, whatever it still does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        """The process: it ends with this one, since it then reads its end and has nobody to write to."""
        program = shutil.which("sort", path=_PLACES)
        if program is None:
            raise UsageFault(f"sort(1) is not in {_PLACES}", advice="Install coreutils.")
        process = subprocess.Popen(
            [program, "-u", "-S", _MEMORY, "-T", os.fspath(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LC_ALL": "C", "PATH": _PLACES, "TMPDIR": os.fspath(self._scratch)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        widen(process.stdin)
        widen(process.stdout)
        return process

    def _send(self, block: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(block)
        except BrokenPipeError as cause:
            raise self._fault(self._process) from cause

    def _fault(self, process: subprocess.Popen[bytes]) -> OSError:
        """What sort(1) says that has stopped it, as the system's own error."""
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
        number = next((one for one in _DISK_FAULTS if os.strerror(one) in said), errno.EIO)
        return OSError(number, said[-300:] or "sort(1) was ended", os.fspath(self._scratch))
