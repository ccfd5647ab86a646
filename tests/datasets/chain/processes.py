"""A process of the chain: the program, started again whenever it is killed, and what it takes and says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.datasets.chain import killed_program

AT_RANDOM = "at any moment"
_MOST_ENDS = 20


class ChainProcess:
    """One process of the chain, in a folder of its own; `look` is called time and again."""

    def __init__(self, name: str, folder: Path, arguments: list[str], chance: random.Random) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kills").touch()
        self.name = name
        self.kills = Counter((folder / "kills").read_text().splitlines())
        self.ended: list[str] = []
        """How it has ended by itself, which it should not."""

        self.peak_kib = 0
        """Of its memory with that of its children, without what is mapped from files."""

        self._folder = folder
        self._arguments = arguments
        self._chance = chance
        self._wanted: list[str] = []
        self._due_at = 0.0
        self._log = (folder / "log").open("ab")
        self._out = (folder / "out").open("ab")
        self._read = (folder / "out").open("rb")
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", killed_program.__name__, str(self._folder), *self._arguments]
        env = {**os.environ, "PYTHONDEVMODE": ""}
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._out, "stderr": self._log, "env": env}
        return subprocess.Popen(command, start_new_session=True, **given)  # as a service has one

    def to_be_killed(self, phases: list[str], within_seconds: float) -> None:
        """Have it end at these phases, one after the other; those `AT_RANDOM` within so many seconds."""
        self._wanted = list(phases)
        self._within = within_seconds
        self._arm()

    def _arm(self) -> None:
        phase = self._folder / "phase"
        phase.unlink(missing_ok=True)
        self._due_at = 0.0
        if not self._wanted:
            return
        if self._wanted[0] == AT_RANDOM:
            self._due_at = time.monotonic() + self._chance.random() * self._within
            return
        often = killed_program.OFTEN.get(self._wanted[0].partition(" ")[2], 1)
        aside = self._folder / "phase.next"
        aside.write_text(f"{self._wanted[0]} {self._chance.randint(1, often)}")
        aside.replace(phase)

    def look(self) -> None:
        """Kill it where that is due, start it again where it was killed, and see what memory it takes."""
        if self._due_at and time.monotonic() >= self._due_at:
            self.process.kill()
            self.process.wait()
        status = self.process.poll()
        if status is None:
            self.peak_kib = max(self.peak_kib, private_kib(self.process.pid))
            return
        if status == -signal.SIGKILL and self._wanted:
            self._count_kill(self._wanted.pop(0))
            self._arm()
        else:
            self.ended.append(f"status {status}: {self.log()[-2000:]}")
            assert len(self.ended) < _MOST_ENDS, self.ended
        self.process = self._started()

    def _count_kill(self, phase: str) -> None:
        self.kills[phase] += 1
        with (self._folder / "kills").open("a") as file:
            file.write(f"{phase}\n")

    def kill_the_rest(self) -> list[str]:
        """Kill it as often as it was to be, but did not come to the phase: these."""
        left, self._wanted = self._wanted, []
        self._arm()
        for _phase in left:
            self.process.kill()
            self.process.wait()
            self._count_kill("when it had nothing to do")
            self.process = self._started()
        return left

    def new_lines(self) -> list[dict[str, Any]]:
        """What it has said since the last call: each line is JSON, and the last may not be whole."""
        lines = []
        while line := self._read.readline():
            if not line.endswith(b"\n"):
                self._read.seek(-len(line), os.SEEK_CUR)
                break
            try:
                lines.append(msgspec.json.decode(line))
            except msgspec.DecodeError:  # killed in the middle of it
                continue
        return lines

    def log(self) -> str:
        """What it has said on standard error."""
        return (self._folder / "log").read_text()

    def steps(self) -> dict[str, list[float]]:
        """The seconds of each step that was done."""
        found: dict[str, list[float]] = {}
        path = self._folder / "steps"
        for line in path.read_text().splitlines() if path.exists() else ():
            name, _, seconds = line.partition("\t")
            found.setdefault(name, []).append(float(seconds))
        return found

    def end(self) -> int:
        """End it in order; its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(600)

    def close(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in (self._log, self._out, self._read):
            file.close()


def private_kib(pid: int) -> int:
    """The resident memory of a process and of its children, without what is mapped from files."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):
        return total
    return total + sum(private_kib(int(child)) for child in children)
