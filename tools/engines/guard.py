"""Stands between us and an engine, so that no engine outlives the process that wanted it.

It starts the engine in a process group of its own and waits for its end. Its standard input is a pipe from whoever
wants the engine: when that pipe closes, even because its owner was killed with -9, the group is killed and the
engine's folders removed. When the guard itself is killed, the kernel kills the engine. Run as a script by
`tools/engines/engine.py`, with one JSON argument; standard library only, nothing of the project.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> NoReturn:
    order = json.loads(sys.argv[1])
    prctl = getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)  # Linux only; elsewhere the pipe has to do
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # Elasticsearch's server is its launcher's child: it is ours when that dies
    owner = order["owner"] or (None, None)
    with open(order["console"], "ab") as console:
        engine = subprocess.Popen(
            order["command"],
            cwd=order["folder"],
            env=order["environment"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
            user=owner[0],
            group=owner[1],
            extra_groups=[] if order["owner"] else None,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # after the change of user, which resets it
        )
    print(engine.pid, flush=True)
    abandoned = threading.Event()
    threading.Thread(target=watch, args=(engine.pid, abandoned), daemon=True).start()
    with contextlib.suppress(ChildProcessError):
        while True:  # until the whole tree is gone, not only its first process
            os.waitpid(-1, 0)
    if abandoned.is_set():
        for folder in (order["folder"], order["data"]):
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)  # the other thread still reads


def watch(group: int, abandoned: threading.Event) -> None:
    """Kill the engine when nobody wants it any more."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    abandoned.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
