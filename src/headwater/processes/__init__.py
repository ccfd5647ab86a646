"""Worker processes, given jobs by pipes: this is their program, which reads jobs and writes an answer for each.

`pool` starts them. The program imports a few modules of the standard library and what the work itself needs, so that it
is started in milliseconds. Both directions carry values of `marshal` behind their length; both ends are the same
interpreter.
"""

import contextlib
import gc
import marshal
import os
import signal
import sys
from importlib import import_module
from typing import IO, Any

_LENGTH = 4
_MOST_OCTETS = 1 << 28


def encode_message(value: Any) -> bytes:
    """One value behind its length."""
    body = marshal.dumps(value, 2)  # later versions look for values that occur twice: a third more to read
    return len(body).to_bytes(_LENGTH, "little") + body


def read_message(stream: IO[bytes]) -> Any:
    """The next value; None at the end, and of what `encode_message` did not write."""
    head = stream.read(_LENGTH)
    length = int.from_bytes(head, "little")
    body = stream.read(length) if len(head) == _LENGTH and length <= _MOST_OCTETS else b""
    try:
        return marshal.loads(body) if body else None  # noqa: S302 - the peer is our own process
    except (EOFError, TypeError, ValueError):
        return None


def run(function: str) -> None:
    """Do jobs until the other end is closed, which is also how the death of the owner looks.

    `function` ("module:name") makes the function that does a job from the first value that is read.
    """
    for number in (signal.SIGINT, signal.SIGHUP):  # the owner decides what they mean
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # nothing here makes cycles
    jobs, answers = sys.stdin.buffer, sys.stdout.buffer
    module, _, name = function.partition(":")
    do = getattr(import_module(module), name)(read_message(jobs))
    with contextlib.suppress(BrokenPipeError):
        while (job := read_message(jobs)) is not None:
            answers.write(encode_message(do(job)))
            answers.flush()
    os._exit(0)  # nothing is left to be done: no answer is asked for any more
