"""Bars of time: who is late twice is forgiven, and it is told; who is late three times, or wrong once, is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import bars
from tests.bars import Late, in_time, unless_late, within

ROOT = Path(__file__).resolve().parent.parent


def test_who_is_late_less_than_three_times_is_forgiven_and_it_is_kept() -> None:
    bars.forgiven()

    def attempt(number: int) -> None:
        if number < 2:
            raise Late(f"attempt {number}")

    in_time(attempt)
    assert bars.forgiven() == ["attempt 0", "attempt 1"]
    assert bars.forgiven() == []


def test_who_is_late_three_times_has_failed() -> None:
    with pytest.raises(Late):
        in_time(lambda _number: (_ for _ in ()).throw(Late("always")))
    bars.forgiven()


def test_who_is_wrong_is_not_tried_again() -> None:
    tried = []

    def attempt(number: int) -> None:
        tried.append(number)
        raise AssertionError

    with pytest.raises(AssertionError):
        in_time(attempt)
    assert tried == [0]


def test_a_bar_that_is_met_and_one_that_is_not() -> None:
    with within(100, "nothing"):
        pass
    with pytest.raises(Late, match="nothing took"), within(-1, "nothing"):
        pass
    with pytest.raises(Late), unless_late(-1):
        raise AssertionError
    with pytest.raises(AssertionError, match="wrong"), unless_late(100):
        raise AssertionError("wrong")


def test_the_summary_tells_what_was_forgiven(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "from tests.bars import Late, in_time\n"
        "def attempt(number):\n    if number == 0: raise Late('it took 7 s')\n"
        "def test_late(): in_time(attempt)\n"
    )
    options = ["-p", "tests.lateness", "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", "-q", *options, str(test)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 bars were missed and forgiven" in done.stdout
    assert "it took 7 s" in done.stdout
