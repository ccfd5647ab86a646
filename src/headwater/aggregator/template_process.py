"""The template of runs: a process of one thread that has imported all of it, and forks a child for each run.

Children share its memory, so a run costs few megabytes. It reads orders as JSON lines on standard input and tells of
the end of each run on standard output. It ends with the service, at the end of its input, and its children with it.
A copy of a process with one thread holds no lock of another one (decision 025).
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import msgspec

from headwater.aggregator.source_run import RunOrder, run_source
from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore
from headwater.aggregator.store import LeaseLost
from headwater.errors import HeadwaterError
from headwater.processes.pool import work_alone
from headwater.storage.database import bound_caches
from headwater.typed_decoding import from_json

_CHUNK: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_CACHE_OCTETS: Final = 8 << 20  # of pages of databases in each run: several run at once
_LOST, _FAILED, _BUG = 75, 74, 70


class RunCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the service wants: a run is begun, asked to stop (SIGTERM), or killed with all that it has started."""

    run: RunOrder | None = None
    stop: int | None = None
    kill: int | None = None


class RunEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a run has ended: by an exit status, or by a signal."""

    number: int
    status: int = 0
    signal: int = 0


class TemplateProcess:
    """The template as the service sees it. `fileno` becomes readable when there is something to `hear`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for the service alone
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._rest = b""
        self.has_ended = False

    @property
    def pid(self) -> int:
        """Its number as a process."""
        return self._process.pid

    def fileno(self) -> int:
        """Where it tells of ends."""
        return self._output

    def send(self, command: RunCommand) -> None:
        """Give it a command; where it has ended, `has_ended` says so."""
        line = memoryview(msgspec.json.encode(command) + b"\n")
        try:
            while line:
                line = line[os.write(self._input, line) :]
        except OSError:
            self.has_ended = True

    def hear(self) -> list[RunEnded]:
        """The ends that it has told of since."""
        while True:
            try:
                octets = os.read(self._output, _CHUNK)
            except BlockingIOError:
                break
            if not octets:
                self.has_ended = True
                break
            self._rest += octets
        *lines, self._rest = self._rest.split(b"\n")
        return [from_json(line, RunEnded) for line in lines]

    def close(self) -> None:
        """End it, and with it all runs."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# in the template


class _Template:
    def __init__(self) -> None:
        self._children: dict[int, int] = {}  # numbers of runs by processes
        self._home = os.getpid()
        reading, self._wakeup = os.pipe()
        for descriptor in (reading, self._wakeup):
            os.set_blocking(descriptor, False)
        self._awaken = reading
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Do what the service wants, until it ends."""
        waiting = selectors.DefaultSelector()
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(self._awaken, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in waiting.select():
                octets = os.read(key.fd, _CHUNK)
                if key.fd == self._awaken:
                    self._bury()
                    continue
                if not octets:
                    return self._end()
                *lines, rest = (rest + octets).split(b"\n")
                for line in lines:
                    self._obey(from_json(line, RunCommand))

    def _obey(self, command: RunCommand) -> None:
        if command.run is not None:
            self._fork(command.run)
        pids = {number: pid for pid, number in self._children.items()}  # none of them has been waited for
        if command.stop in pids:
            with suppress(ProcessLookupError):
                os.kill(pids[command.stop], signal.SIGTERM)
        if command.kill in pids:
            _kill_group(pids[command.kill])

    def _fork(self, order: RunOrder) -> None:
        try:
            pid = os.fork()
        except OSError:  # no process is to be had: the run has ended before it began
            self._tell(RunEnded(number=order.run.number, status=_FAILED))
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(self._awaken)
            os.close(self._wakeup)
            _be_a_run(order, self._home)
        with suppress(OSError):  # the child does it as well: whoever comes first
            os.setpgid(pid, pid)
        self._children[pid] = order.run.number

    def _bury(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self._children.pop(pid, None)
            if number is None:
                continue
            _kill_group(pid)  # what it had started
            code = os.waitstatus_to_exitcode(status)
            self._tell(RunEnded(number=number, status=max(code, 0), signal=max(-code, 0)))

    def _tell(self, ended: RunEnded) -> None:
        with suppress(BrokenPipeError):  # the service is gone: its end of our input says so
            os.write(1, msgspec.json.encode(ended) + b"\n")

    def _end(self) -> None:
        for pid in self._children:
            _kill_group(pid)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# in a child


def _be_a_run(order: RunOrder, template: int) -> NoReturn:
    status = _BUG
    try:
        status = _run(order, template)
    except BaseException:  # noqa: BLE001  the process ends here, whatever it was
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def _run(order: RunOrder, template: int) -> int:
    with suppress(OSError):
        os.setpgid(0, 0)
    _die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, stop)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    stopped: Callable[[], bool] = lambda: bool(asked) or os.getppid() != template  # noqa: E731
    if stopped():
        return _FAILED
    with SqliteStore(Path(order.state) / HOME / FILE) as store:
        try:
            run_source(order, store, stopped)
        except LeaseLost:
            return _LOST
        except HeadwaterError as fault:
            print(fault, file=sys.stderr)  # noqa: T201  the service tells it as its own
            return _FAILED
    return 0


def _die_with_parent() -> None:
    if sys.platform == "linux":  # elsewhere the run sees by itself that its parent is another one
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Be the template."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work_alone()
    import headwater.sync.audit.auditor  # noqa: F401  imported once, before all forks

    bound_caches(_CACHE_OCTETS)
    gc.collect()
    gc.freeze()
    _Template().serve()


if __name__ == "__main__":
    main()
