"""The template of runs: a process of one thread that has imported all of it, and forks a child for each run.

Children share its memory, so a run costs few megabytes. It hears commands and tells of the end of each run by one
connection, its standard input. It ends with the service, at the end of that connection, and its children with it.
A copy of a process with one thread holds no lock of another one (decision 025).
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from headwater.aggregator.source_run import RunOrder, run_source
from headwater.aggregator.sqlite_store import FILE, HOME, SqliteStore
from headwater.errors import HeadwaterError
from headwater.processes.pool import work_alone
from headwater.storage.database import bound_caches
from headwater.typed_decoding import from_json

_LOOK_SECONDS: Final = 0.02
"""How soon the template sees that a run has ended, while there are any."""

_PR_SET_PDEATHSIG: Final = 1
_CACHE_OCTETS: Final = 8 << 20  # of pages of databases in each run: several run at once
_FAILED, _BUG = 74, 70


class _Command(msgspec.Struct, frozen=True):
    """What the service wants of a run: a signal for it, or that it begins by an order, which its own process reads."""

    number: int
    signal: int = 0
    order: bytes = b""


class TemplateProcess:
    """The template as the service sees it. `fileno` becomes readable when there is something to `hear`."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for the service alone
            )
        self.has_ended = False

    @property
    def pid(self) -> int:
        """Its number as a process."""
        return self._process.pid

    def fileno(self) -> int:
        """Where it tells of ends."""
        return self._pipe.fileno()

    def send(self, number: int, signal: int = 0, order: bytes = b"") -> None:
        """Begin a run by an order in JSON, ask it to stop (SIGTERM), or kill it with all that it has started (SIGKILL).

        An order that cannot be read ends its run.
        """
        with suppress(OSError):  # it has ended, as `hear` finds
            self._pipe.send_bytes(msgspec.json.encode(_Command(number, signal, order)))

    def hear(self) -> dict[int, int]:
        """How runs have ended since, by their numbers: exit statuses, or negative numbers of signals.

        `has_ended` says whether the template is gone itself.
        """
        found: dict[int, int] = {}
        try:
            while self._pipe.poll():
                number, code = from_json(self._pipe.recv_bytes(), list[int])
                found[number] = code
        except (EOFError, OSError):
            self.has_ended = True
        return found

    def close(self) -> None:
        """End it, and with it all runs."""
        self._pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# in the template


class _Template:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._children: dict[int, int] = {}  # processes by numbers of runs; none of them has been waited for
        self._untold: list[bytes] = []

    def serve(self) -> None:
        """Do what the service wants, until it ends. Nothing waits for the service to hear: it may wait to be heard."""
        with suppress(EOFError, ConnectionError):
            while True:
                telling = [self._pipe] if self._untold else []
                heard, free, _ = select.select([self._pipe], telling, [], _LOOK_SECONDS if self._children else None)
                if heard:
                    self._obey(from_json(self._pipe.recv_bytes(), _Command))
                if free:
                    self._pipe.send_bytes(self._untold.pop(0))
                self._bury()
        for pid in self._children.values():
            _kill_group(pid)

    def _obey(self, command: _Command) -> None:
        pid = self._children.get(command.number)
        if not command.signal:
            self._fork(command.number, command.order)
        elif pid is not None and command.signal == signal.SIGKILL:
            _kill_group(pid)
        elif pid is not None:
            os.kill(pid, command.signal)

    def _fork(self, number: int, order: bytes) -> None:
        template = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # no process is to be had: the run has ended before it began
            self._tell(number, _FAILED)
            return
        if pid == 0:
            _be_a_run(order, template)
        with suppress(OSError):  # the child does it as well: whoever comes first
            os.setpgid(pid, pid)
        self._children[number] = pid

    def _bury(self) -> None:
        for number, pid in list(self._children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._children[number]
                _kill_group(pid)  # what it had started
                self._tell(number, os.waitstatus_to_exitcode(status))

    def _tell(self, number: int, code: int) -> None:
        self._untold.append(msgspec.json.encode((number, code)))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# in a child


def _be_a_run(order: bytes, template: int) -> NoReturn:
    status = _BUG
    asked: list[int] = []
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        if sys.platform == "linux":  # elsewhere the run sees by itself that its parent is another one
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        read = from_json(order, RunOrder)
        with SqliteStore(Path(read.state) / HOME / FILE) as store:
            run_source(read, store, lambda: bool(asked) or os.getppid() != template)
        status = 0
    except HeadwaterError as fault:
        status = _FAILED
        print(fault, file=sys.stderr)  # noqa: T201  the service tells it as its own
    except BaseException:  # noqa: BLE001  the process ends here, whatever it was
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Be the template."""
    work_alone()
    import headwater.sync.audit.auditor  # noqa: F401  imported once, before all forks

    bound_caches(_CACHE_OCTETS)
    gc.collect()
    gc.freeze()
    _Template(Connection(0)).serve()


if __name__ == "__main__":
    main()
