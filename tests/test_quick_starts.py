"""What is forked from a template is a process of the program as any other (`support/quick_starts.py`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.version import __version__
from tests.support.examples import MANY
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux" or MANY, reason="every process is started in full")

PROGRAM = (sys.executable, "-m", "headwater")


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_it_is_a_child_of_who_started_it_and_has_what_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "headwater.py").write_text("raise SystemExit(99)")  # not for the program, whatever the current folder
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*PROGRAM, "inspect", "-"], stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path, start_new_session=True
    )
    parent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) == os.getpid()
    assert "inspect" not in command_line(process.pid)
    assert process.poll() is None
    out, err = process.communicate(b"x", timeout=60)
    assert (process.returncode, out) == (3, b"")
    assert b"HW-DOC-02" in err
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)  # it was waited for


def test_its_environment_and_its_folder_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text("nothing = 1")
    environment = {**os.environ, "COLUMNS": "60", "_HEADWATER_COMPLETE": ""}
    said = subprocess.run(
        [*PROGRAM, "status", "here.toml"], cwd=tmp_path, env=environment, capture_output=True, timeout=60
    )
    assert said.returncode == 2
    assert b"nothing" in said.stderr
    environment["_HEADWATER_COMPLETE"] = "bash_source"
    completes = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, timeout=60)
    assert "complete" in completes.stdout


def test_one_with_another_interpreter_is_started_in_full() -> None:
    environment = {**os.environ, "PYTHONDEVMODE": "1"}
    with subprocess.Popen(
        [*PROGRAM, "inspect", "-"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        until(lambda: "inspect" in command_line(process.pid))
    version = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout == f"headwater {__version__}\n"
