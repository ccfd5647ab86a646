"""Signals that end a command in order, and at once when they come again."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from headwater.cli.stop_signal import StopSignal
from headwater.errors import Exit


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, Exit.DONE), (signal.SIGINT, Exit.INTERRUPTED)], ids=["SIGTERM", "SIGINT"]
)
def test_the_first_signal_sets_the_event_and_decides_the_exit_status(number: signal.Signals, status: Exit) -> None:
    with StopSignal() as stop:
        assert not stop.event.is_set()
        signal.raise_signal(number)
        stop.wait()
        assert stop.exit_status is status


def test_a_second_signal_acts_as_usual() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.event.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_signal_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with StopSignal() as stop:
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert stop.exit_status is Exit.DONE


def test_a_program_that_is_being_loaded_ends_without_a_word() -> None:
    """Ctrl-C right after the return key showed how far the imports had come."""
    pressed = """
import os, signal, sys
class Pressed:
    def find_spec(self, name, *_):
        if name == "headwater.cli":
            os.kill(os.getpid(), signal.SIGINT)
from headwater.__main__ import main
sys.meta_path.insert(0, Pressed())
main()
"""
    done = subprocess.run([sys.executable, "-c", pressed], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
