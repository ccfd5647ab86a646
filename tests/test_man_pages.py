"""The man pages: one for each command, which groff formats without a warning."""

import shutil
import subprocess

import pytest
from tools.man_pages import pages

from headwater.cli import COMMANDS

PAGES = pages()


def test_every_command_has_a_page() -> None:
    assert {"headwater.1", "headwater-catalog-drop.1"} <= PAGES.keys()
    assert {f"headwater-{name}.1" for name in COMMANDS} <= PAGES.keys()


def test_they_are_formatted_without_a_warning() -> None:
    if (groff := shutil.which("groff")) is None:
        pytest.skip("groff is not here")
    text = "\n".join(PAGES.values())
    done = subprocess.run(
        [groff, "-man", "-ww", "-Kutf8", "-Tutf8", "-rLL=78n"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Copy the source at URL into the folder DEST" in " ".join(done.stdout.split())


def test_a_page_has_options_and_statuses() -> None:
    text = PAGES["headwater-status.1"]
    assert ".B \\-\\-max\\-age SECONDS\n" in text
    assert ".SH EXIT STATUSES FOR A COPY\n.TP\n.B 0\nall is well\n" in text
