"""`headwater publish --dry-run` names what becomes public and what ceases to be, before it happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.errors import Exit
from tests.support.program import run_here
from tests.support.waiting import settle


def publish(base: Path, *more: str, status: int = 0) -> str:
    where = ("--files", base / "files", "--to", base / "out", "--base-url", "https://example.org/data")
    done = run_here("publish", *where, *more)
    assert done.returncode == status, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A published folder of 40 files, of which some have changed since."""
    files = tmp_path / "files"
    files.mkdir()
    for number in range(40):
        (files / f"{number:02}.txt").write_text("x")
    settle()
    publish(tmp_path)
    for number in range(13):
        (files / f"é {number:02}.txt").write_text("new")
    (files / "03.txt").unlink()
    (files / "04.txt").write_text("changed")
    return tmp_path


def test_the_files_that_become_public_come_first_and_the_rest_is_counted(base: Path) -> None:
    lines = publish(base, "--dry-run").splitlines()
    assert lines[0].startswith("files: would read 14 files, ")
    new = [f"  new: é {number:02}.txt" for number in range(10)]
    assert lines[1:] == [
        *new,
        "  … and 3 more new (--json names all)",
        "  delete: 03.txt",
        "  perhaps changed: 04.txt",
    ]


def test_json_names_all(base: Path) -> None:
    told = json.loads(publish(base, "--dry-run", "--json"))
    assert told["names"] == {
        "created": [f"%C3%A9%20{number:02}.txt" for number in range(13)],
        "deleted": ["03.txt"],
        "updated": ["04.txt"],
    }
    assert (told["created"], told["deleted"], told["updated"]) == (13, 1, 1)


def test_what_a_pattern_would_take_out_is_named(base: Path) -> None:
    lines = publish(base, "--dry-run", "--exclude", "1?.txt", "--exclude", "é*").splitlines()
    assert lines[1:] == [f"  delete: {name}.txt" for name in ("03", *range(10, 19))] + [
        "  … and 1 more delete (--json names all)",
        "  perhaps changed: 04.txt",
    ]


def test_deletions_that_would_be_held_back_are_not_named(base: Path) -> None:
    for number in range(5, 40):
        (base / "files" / f"{number:02}.txt").unlink()
    told = json.loads(publish(base, "--dry-run", "--json", status=Exit.TRANSFERS_FAILED))
    assert (told["names"]["deleted"], told["deleted"]) == ([], 0)
    assert told["held_back"] is not None


def test_of_a_new_folder_all_files_are_new(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a\nb.txt").write_text("x")
    assert publish(tmp_path, "--dry-run").splitlines()[1:] == ["  new: a\\nb.txt"]
    assert not (tmp_path / "out").exists()


def test_rules_that_choose_no_file_are_named_before_the_first_publication(tmp_path: Path) -> None:
    files = tmp_path / "files" / "a"
    files.mkdir(parents=True)
    for name in ("1.pdf", "1.xml"):
        (files / name).write_text("x")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\nbase_url = "http://x.example"\n[[set]]\nname = "s"\nfiles = "files"\n'
        'described = [{content = "a/{stem}.pdf", record = "{stem}.mods"},'
        ' {content = "a/{stem}.xml", record = "a/x{stem}"}]\n'
        'links = [{rel = "license", href = "http://x.example/l", match = ["a/*.pdf"]},'
        ' {rel = "license", href = "http://x.example/m", match = ["b/", "*.csv"]}]\n'
    )
    told = run_here("publish", config, "--dry-run").stdout.decode()
    idle = {line.strip() for line in told.splitlines() if "no file fits" in line}
    assert idle == {f"no file fits {one} of `described` or `links`" for one in ("{stem}.mods", "a/x{stem}", "b/ *.csv")}
    settle()
    assert run_here("publish", config).returncode == 0
    assert "no file fits" not in run_here("publish", config, "--dry-run").stdout.decode()
