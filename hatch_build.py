"""Says of which date and commit a build is: in the version of wheel and sdist, and in a file that the program reads.

The date and commit are those of git where the build is made in a clone, else those that the sdist has brought along.
A build of a tagged commit, and one of which nothing is known, has the plain version; an editable one has no note.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
NOTE = ROOT / "src" / "headwater" / "build.txt"


def version() -> str:
    """The version of the distribution, such as `0.2.0+20261130.1a2b3c4d5e`."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/headwater/version.py").read_text(), re.MULTILINE)
    assert found is not None
    build = build_note()
    return f"{found[1]}+{build}" if build and not _git("tag", "--points-at", "HEAD") else found[1]


def build_note() -> str:
    """Date and commit, with `.changed` where files were changed since; empty where nothing is known."""
    if not (ROOT / ".git").exists():  # a clone that the folder only lies in is another one
        return NOTE.read_text("ascii").strip() if NOTE.exists() else ""
    commit = _git("log", "-1", "--date=format:%Y%m%d", "--format=%cd.%h", "--abbrev=10")
    return commit + (".changed" if commit and _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*args: str) -> str:
    try:
        done = subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


class BuildNote(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the note to what is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a build."""
        if version == "editable" or not (ROOT / ".git").exists() or not (note := build_note()):
            return
        self._folder = tempfile.TemporaryDirectory()
        made = Path(self._folder.name) / "build.txt"
        made.write_text(f"{note}\n", "ascii")
        inside = "src/headwater/build.txt" if self.target_name == "sdist" else "headwater/build.txt"
        build_data["force_include"][str(made)] = inside
