"""Processes of the program that are forked from one that has imported it: importing is most of what a start costs.

`subprocess.Popen([sys.executable, "-m", "headwater", …])`, or a module of `tests` in its place, asks a template for a
process: one with a single thread, in which the modules of the program are imported and none of it has run. The process
that comes of it is a child of the asking one, as any that it starts, with the streams, the folder and the environment
that were given. It differs in its command line, as the system shows it, and in the memory that it has at its start.

Started in full are those that get other variables of the interpreter, those of `REAL`, all in a long run
(`make test-long`), and all where there is no Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.examples import MANY

REAL = ("tests/cli/test_command_line.py", "tests/test_packaging.py")
"""Files of tests that are about how the program starts."""
PROGRAMS = ("headwater", "tests")
AS_CODE = "from headwater.cli import main; main()"
OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ", "LD_")
PR_SET_CHILD_SUBREAPER = 36
_usual_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

_TEMPLATE = """
import gc, json, os, runpy, signal, socket, sys, tempfile
from importlib import import_module
from headwater.cli import COMMANDS, command_named
for name in COMMANDS:
    command_named(name)
for name in ("headwater.http.app", "headwater.http.server", "headwater.source.source", "headwater.sync.run"):
    import_module(name)
def wanted():
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        while True:
            octets, streams, _, _ = socket.recv_fds(asked, 1 << 20, 3)
            if not octets:
                os._exit(0)
            between = os.fork()
            if between == 0:
                number = os.fork()
                if number == 0:
                    break
                asked.send(b"%d" % number)
                os._exit(0)
            os.waitpid(between, 0)
            asked.send(b".")
            for stream in streams:
                os.close(stream)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(octets)
signal.signal(signal.SIGINT, signal.SIG_IGN)
tempfile.tempdir = None
gc.collect()
gc.freeze()
words, folder, environment, own_session = wanted()
signal.signal(signal.SIGINT, signal.default_int_handler)
if own_session:
    os.setsid()
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
sys.path[0] = os.getcwd()
sys.argv = words
runpy.run_module(words[0], run_name="__main__", alter_sys=True)
"""


class Template:
    """The process that is forked, from the first start on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asks: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._reap = ctypes.CDLL(None).prctl

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether the interpreter would be the same with these variables."""
        return interpreters(environment) == interpreters(self._environment or os.environ)

    def start(self, words: list[str], streams: list[int], folder: str, environment: Any, own: bool) -> int:
        """The number of a new process, a child of this one: the first word is its module."""
        with self._lock:
            if self._asks is None:
                self._asks = self._started()
            self._reap(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # whom the one in between leaves, is ours
            try:
                asked = json.dumps([words, folder, environment, own]).encode()
                socket.send_fds(self._asks, [asked], streams)
                number = int(self._asks.recv(20))
                assert self._asks.recv(20) == b"."
                return number
            finally:
                self._reap(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    def _started(self) -> socket.socket:
        self._environment = dict(os.environ)
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            its.set_inheritable(True)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _TEMPLATE, str(its.fileno())], stdin=subprocess.DEVNULL, pass_fds=[its.fileno()]
            )
        return ours

    def close(self) -> None:
        """End it; what was forked goes on."""
        if self._asks is not None and self._process is not None:
            self._asks.close()
            self._process.wait()


def interpreters(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that say how an interpreter works."""
    return {name: text for name, text in environment.items() if text and name.startswith(OF_THE_INTERPRETER)}


def quick(template: Template, process: Any, arguments: Any, options: tuple[Any, ...]) -> bool:
    """Start a process from the template, where it fits; these are the arguments of `Popen._execute_child`."""
    executable, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *pipes = options
    stdin, p2cwrite, c2pread, stdout, errread, stderr, _, gid, gids, uid, umask, own, group = pipes
    words = list(map(os.fsdecode, arguments)) if isinstance(arguments, list | tuple) else []
    usual = (None, None, (), False, None, None, None, -1, -1)
    if (executable, preexec_fn, tuple(pass_fds), shell, gid, gids, uid, umask, group) != usual:
        return False
    if words[1:2] == ["-c"] and words[2].strip() == AS_CODE:
        words[1:3] = ["-m", "headwater"]
    if words[:2] != [sys.executable, "-m"] or words[2].partition(".")[0] not in PROGRAMS:
        return False
    environment = {os.fsdecode(name): os.fsdecode(text) for name, text in (os.environ if env is None else env).items()}
    if os.environ.get("PYTEST_CURRENT_TEST", "").startswith(REAL) or not template.fits(environment):
        return False
    streams = [number if given == -1 else given for number, given in enumerate((stdin, stdout, stderr))]
    folder = os.getcwd() if cwd is None else os.fsdecode(cwd)
    process.pid = template.start(words[2:], streams, folder, environment, own)
    process._child_created = True
    process._close_pipe_fds(stdin, p2cwrite, c2pread, stdout, errread, stderr)
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Have all tests start the program so."""
    if sys.platform != "linux" or MANY:
        return
    template = Template()

    def start(self: Any, args: Any, *options: Any) -> None:
        if not quick(template, self, args, options):
            _usual_start(self, args, *options)

    subprocess.Popen._execute_child = start  # type: ignore[attr-defined]
    config.add_cleanup(template.close)
    config.add_cleanup(lambda: setattr(subprocess.Popen, "_execute_child", _usual_start))
