"""The start of the program, as `headwater` and as `python -m headwater`."""

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(__file__)):
    del sys.path[0]  # `python -m` puts the current folder first, which may be one that strangers write to

import signal


def main() -> None:
    """Run the program; Ctrl-C while it is still being loaded ends it without a word, as there is nothing to end yet."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else whoever started us has other plans
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from headwater.cli import main as run_program

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run_program()
    except SystemExit as end:
        _end_at_once(end)
        raise


def _end_at_once(end: SystemExit) -> None:
    """End the process without taking it apart object by object, which takes longer than many a command.

    Returns where other threads are alive: these are waited for in the usual way.
    """
    import atexit
    import contextlib
    import threading

    if threading.active_count() > 1 or not isinstance(end.code, int):
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, or closed by whoever reads it
            stream.flush()
    os._exit(end.code)


if __name__ == "__main__":
    main()
