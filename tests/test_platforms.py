"""Where Headwater runs: systems, versions of Python, versions of the libraries that it leans on."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from headwater import cli
from headwater.processes.pool import processors

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("name", [*cli.COMMANDS, "--help", "--version"])
def test_windows_is_refused_with_one_clear_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli.run([name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "does not run on Windows" in said.err
    assert "Traceback" not in said.err
    assert cli.run([name, "--json"]) == 2
    assert "Windows" in json.dumps(json.loads(capsys.readouterr().out))


def test_the_readme_says_where_it_runs() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert re.search(r"Linux and macOS.*on Windows in WSL only", text, re.DOTALL)


def test_processors_are_counted_where_no_affinity_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has none."""
    assert processors() >= 1
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert processors() == os.cpu_count()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1


@pytest.mark.parametrize(
    ("word", "home"),
    [
        ("sched_getaffinity", "processes/pool.py"),
        ("os.fork(", "aggregator/template_process.py"),
        ('get_context("fork")', None),
        ("get_context()", None),
    ],
)
def test_what_not_every_system_has_is_asked_in_one_place(word: str, home: str | None) -> None:
    homes = {str(path.relative_to(ROOT / "src" / "headwater")) for path in SOURCES if word in path.read_text("utf-8")}
    assert homes == ({home} if home else set())


def bounds(name: str) -> str:
    """What the project says of the versions of a library that it needs."""
    (found,) = (one for one in PROJECT["dependencies"] if re.split(r"[<>=;\[ ]", one)[0] == name)
    return str(found.removeprefix(name))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def test_uvicorn_is_bounded_by_the_next_version_that_was_not_tried() -> None:
    """The server builds on `HttpToolsProtocol`, which is no public name: another version may have another one."""
    lowest, highest = re.fullmatch(r">=([\d.]+),<([\d.]+)", bounds("uvicorn")).groups()  # type: ignore[union-attr]
    tried = numbers(version("uvicorn"))
    assert numbers(lowest) <= tried < numbers(highest)
    assert numbers(highest) == (tried[0], tried[1] + 1)


TAKEN = """
connection_made connection_lost data_received eof_received on_message_begin on_url on_header on_headers_complete on_body
on_message_complete on_response_complete shutdown pause_writing resume_writing timeout_keep_alive_handler
"""


@pytest.mark.parametrize("name", TAKEN.split())
def test_what_we_take_from_uvicorn_s_private_class_is_there(name: str) -> None:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    assert callable(getattr(HttpToolsProtocol, name))


def test_click_is_as_new_as_what_we_use_of_it() -> None:
    assert numbers(bounds("click").removeprefix(">=")) >= (8, 4)


def test_the_versions_of_python_that_are_named_are_those_that_are_tried() -> None:
    from tools.matrix import VERSIONS

    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"
    assert named == list(VERSIONS)[: len(named)]
