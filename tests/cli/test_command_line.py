"""The command line's frame: fast help, one exit status for each kind of end, every error told in full."""

import ast
import errno
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import click
import pytest

import headwater
from headwater import cli
from headwater.cli import output
from headwater.cli.shared_options import Octets, WholeSeconds
from headwater.errors import (
    Exit,
    HeadwaterError,
    SourceFault,
    StoreFault,
    Undetermined,
    UsageFault,
    exit_status_of,
    messages,
)
from headwater.progress import Notice, Progress
from headwater.quantities import human_octets, human_seconds
from tests.support.program import run_here

HEAVY = ("pycurl", "apsw", "uvicorn", "rich", "selectolax", "msgspec", "asyncio", "httptools", "isal")


def headwater_command(*args: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", *args], capture_output=True, text=True, timeout=60, check=False, **kwargs
    )


def test_help_names_the_commands() -> None:
    done = headwater_command("--help")
    assert done.returncode == 0
    assert "sync" in done.stdout


@pytest.mark.parametrize(
    ("command", "continues"), [(("sync", "http://127.0.0.1:1/"), True), (("audit", "http://127.0.0.1:1/"), False)]
)
def test_an_interrupted_command_says_whether_the_next_goes_on(
    command: tuple[str, ...], continues: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.sync.run.synchronise", interrupted)
    monkeypatch.setattr("headwater.cli.audit.audit", interrupted)
    done = run_here(*command, tmp_path, "--json")
    assert done.returncode == Exit.INTERRUPTED
    assert done.stderr.startswith(b"interrupted\n")
    assert (b"it continues where this one stopped" in done.stderr) is continues
    assert (b"it continues where this one stopped" in done.stdout) is continues


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, headwater.cli as c; c.run(['--help']); print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version_is_the_package_s() -> None:
    assert headwater_command("--version").stdout == f"headwater {headwater.__version__}\n"


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help_that_matches_the_table(name: str) -> None:
    assert isinstance(cli.command_named(name), click.Command)
    done = run_here(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"Usage: headwater " + name.encode())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["synk"], "did you mean sync?"),
        (["--nonsense"], "No such option"),
        (["completion"], "Missing argument"),
        (["completion", "tcsh"], "is not one of"),
        (["serve", "--files", "/etc/passwd"], "'/etc/passwd' is a file, and a folder is needed"),
        (["serve", "--files", "/nowhere"], "'/nowhere' does not exist"),
        (["serve", "/etc"], "'/etc' is a folder, and a file is needed"),
        (["serve", "--port", "eighty"], "'eighty' is no whole number"),
        (["status", "x", "--watch", "0.05s"], "'0.05s' is less than 0.1 seconds"),
        (["status", "x", "--max-age", "long"], "'long' is no duration: give seconds, or 90min, 24h, 7d"),
        (["sync", "http://x.example/", "y", "--timeout", "0.5s"], "'0.5s' is less than 1 seconds"),
        (["sync", "http://x.example/", "y", "--max-size", "big"], "'big' is no number of octets: give one, or 20GB"),
        (["sync", "http://x.example/", "y", "--max-size", "0"], "'0' is less than 1"),
    ],
)
def test_usage_errors_end_with_2_and_advice(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(args) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "code: HW-USE-01" in err
    assert "--help" in err


def test_octets_and_durations_are_taken_as_people_write_them() -> None:
    assert [WholeSeconds(1).convert(text, None, None) for text in ("30", "1.5s", "2min")] == [30, 2, 120]
    assert [Octets().convert(text, None, None) for text in ("0", "4096", "2GB", "1.5 GiB")] == [
        0, 4096, 2_000_000_000, 1_610_612_736,
    ]  # fmt: skip


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == Exit.USAGE
    assert "Commands:" in capsys.readouterr().err


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException | int | None) -> None:
    @click.command("sync")
    def command() -> int | None:
        if isinstance(error, BaseException):
            raise error
        return error

    monkeypatch.setattr(cli.Commands, "get_command", lambda *_: command)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (Exit.DONE, 0),
        (Exit.FINDINGS, 1),
        (UsageFault("x"), 2),
        (SourceFault("x"), 3),
        (Exit.TRANSFERS_FAILED, 4),
        (Undetermined("x"), 5),
        (StoreFault("x"), 6),
        (OSError(errno.ENOSPC, "No space left on device"), 6),
        (PermissionError(errno.EACCES, "Permission denied", "there"), 6),
        (KeyboardInterrupt(), 130),
        (ValueError("a bug"), 70),
        (OSError(errno.EBADF, "a bug"), 70),
    ],
)
def test_every_end_has_its_exit_status(
    error: BaseException | int | None, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert cli.run(["sync"]) == status
    err = capsys.readouterr().err
    if status == 70:
        assert "please report" in err
        assert "Traceback" in err
    else:
        assert "Traceback" not in err


def test_no_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full /tmp or a file system that is read-only: what the standard library says of it is no bug of ours."""
    dataset = tmp_path / "a.nq"
    dataset.write_text("<http://a/> <http://b/> <http://c/> .\n")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "nowhere"), "/proc/none"])
    for command in ("canonical", "hash", "check"):
        assert cli.run(["rdf", command, str(dataset)]) == 6
        said = capsys.readouterr().err
        assert "no folder for temporary files" in said
        assert str(tmp_path / "nowhere") in said
        assert "Set TMPDIR" in said
        assert "Traceback" not in said


def test_an_error_says_what_where_code_rule_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, SourceFault("no entries\x1b[2J", where="http://a/\nb", rule="RS-RL-01", advice="Ask them."))
    assert cli.run(["sync"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: no entries\\x1b[2J",
        "  where: http://a/\\nb",
        "  code: HW-SRC-01 (RS-RL-01)",
        "  do: Ask them.",
    ]


def test_an_error_class_is_what_the_message_of_its_code_says() -> None:
    def tree(kind: type[HeadwaterError]) -> list[type[HeadwaterError]]:
        return [kind, *(deep for child in kind.__subclasses__() for deep in tree(child))]

    import_all()
    for kind in tree(HeadwaterError):
        known = messages()[kind.code]
        assert kind.exit_status == exit_status_of(known), kind
        assert known.advice.endswith("."), known
    for known in messages().values():
        assert re.fullmatch(r"(HW-([A-Z]+-\d\d|000))|RS-\w+-\d\d", known.code)


def test_who_must_act_is_the_same_where_an_error_is_raised_and_in_its_message() -> None:
    """`UsageFault("…", code="HW-…")`: the branch of its class is that of the table."""
    import_all()
    for path in Path(*headwater.__path__).rglob("*.py"):
        module = import_module(".".join(("headwater", *path.relative_to(*headwater.__path__).with_suffix("").parts)))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            codes = [one.value for one in node.keywords if one.arg == "code"] if isinstance(node, ast.Call) else []
            if codes and isinstance(codes[0], ast.Constant) and isinstance(node, ast.Call):
                kind = vars(module).get(ast.unparse(node.func))
                if isinstance(kind, type) and issubclass(kind, HeadwaterError):
                    error = kind("it fails", code=str(codes[0].value))
                    assert error.exit_status == exit_status_of(messages()[error.code]), (path, node.lineno)


def import_all() -> None:
    for module in pkgutil.walk_packages(headwater.__path__, "headwater."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "from headwater.cli import program, main\n"
    code += "@program.command('flood')\ndef flood():\n    [print('x' * 1000) for _ in range(10000)]\n"
    code += "import headwater.cli as c; c.Commands.get_command = lambda *_: flood; main(['flood'])"
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    os.read(read, 100)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 141


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    done = run_here("completion", shell)
    assert done.returncode == 0
    assert b"_HEADWATER_COMPLETE" in done.stdout


def test_completion_completes_commands() -> None:
    environment = {**os.environ, "_HEADWATER_COMPLETE": "bash_complete", "COMP_WORDS": "headwater s", "COMP_CWORD": "1"}
    done = headwater_command(env=environment)
    assert done.stdout.split() == [f"plain,{name}" for name in cli.COMMANDS if name.startswith("s")]


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (4096, "4.00 KiB"),
        (12_900_000, "12.3 MiB"),
        (1 << 40, "1.00 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes(octets: int, said: str) -> None:
    assert human_octets(octets) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.424, "0.42 s"), (12.34, "12.3 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (273_600, "3 d 4 h")],
)
def test_durations(seconds: float, said: str) -> None:
    assert human_seconds(seconds) == said


def test_without_a_terminal_only_notices_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with output.listening() as listener:
        listener(Progress("scan", 1, 2))
        listener(Notice("AMB-06", "odd\x07 time", where="http://a/"))
    assert capsys.readouterr().err == "note: odd\\x07 time (http://a/) [AMB-06]\n"


def test_on_a_terminal_bars_are_drawn() -> None:
    import pty

    code = "from headwater.cli.output import listening\nfrom headwater.progress import *\n"
    code += "with listening() as l:\n  l(Progress('scan', 2, 2, 4096)); l(Notice('R', 'hello'))\n"
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    subprocess.run([sys.executable, "-c", code], stderr=child, check=True, timeout=60, env=environment)
    os.close(child)
    drawn = b""
    try:
        while block := os.read(parent, 65536):
            drawn += block
    except OSError:  # the other end of a pseudo-terminal is gone
        pass
    os.close(parent)
    assert b"hello" in drawn
    assert b"2 of 2, 4.00 KiB" in drawn


def test_json_goes_to_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output.json_line({"a": 1})
    output.json_document({"b": "é"})
    sys.stdout.flush()
    lines = capfdbinary.readouterr().out.decode().split("\n", 1)
    assert [json.loads(line) for line in lines] == [{"a": 1}, {"b": "é"}]


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "s0"), (6, "s0, s1, s2, s3, s4, s5"), (7, "s0, s1, s2, s3, s4 and 2 more"), (4_123, "s4 and 4,118 more")],
)
def test_a_line_for_people_does_not_name_thousands(count: int, said: str) -> None:
    assert output.some_of([f"s{number}" for number in range(count)]).endswith(said)


@pytest.mark.parametrize(
    "thread", ["", "import threading, time; threading.Thread(target=time.sleep, args=(0.2,)).start()"]
)
@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["nonsense"], 2)])
def test_the_end_loses_no_output(thread: str, words: list[str], status: int) -> None:
    """What was registered for the end is done, and what was written arrives, with other threads or without."""
    code = f"{thread}\nimport atexit, sys\natexit.register(print, 'at the end')\nprint('before')\n"
    code += "from headwater.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0], lines[-1]) == (status, "before", "at the end")
    assert ("No such command" in done.stderr) == bool(status)
