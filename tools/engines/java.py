"""Which Java the engines run on: the machine's default is often too old, with a newer one beside it."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.engines.errors import Unavailable
from tools.engines.unprivileged import unreachable

PLACES = ("/usr/lib/jvm/*", "/opt/java/*", "/opt/jdk*", "~/.sdkman/candidates/java/*", "~/.jdks/*")
"""Folders in which distributions and installers put one Java beside another."""


@dataclass(frozen=True)
class Java:
    """One Java that was found, by its folder and its feature release (21, 25)."""

    home: Path
    release: int


def feature(release_file: str) -> int | None:
    """The feature release that a `release` file tells: 17 of "17.0.15", 8 of "1.8.0_392", None when it tells none."""
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release_file, re.MULTILINE)
    return int(found[1]) if found else None


def look(home: Path) -> Java | None:
    """The Java in a folder, None when there is none that can be used from here."""
    try:
        release = feature((home / "release").read_text("utf-8", "replace"))
    except OSError:
        return None
    program = home / "bin" / "java"
    usable = release is not None and os.access(program, os.X_OK) and unreachable(program.resolve()) is None
    return Java(home, release) if usable and release is not None else None


def homes(environ: Mapping[str, str] = os.environ, places: Iterable[str] = PLACES) -> list[Path]:
    """Folders in which a Java may be, the one that the user named first."""
    found = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    found += [Path(name) for place in places for name in sorted(glob.glob(os.path.expanduser(place)))]
    if program := shutil.which("java", path=environ.get("PATH")):
        found.append(Path(program).resolve().parent.parent)
    return found


def choose(candidates: Iterable[Java], oldest: int, named: Path | None = None) -> Java | None:
    """The one that was named if it is new enough, else the oldest that is: engines are tested on no newer ones."""
    fit = [java for java in candidates if java.release >= oldest]
    return next((java for java in fit if java.home == named), None) or min(
        fit, key=lambda one: one.release, default=None
    )


def find(oldest: int, environ: Mapping[str, str] = os.environ, places: Iterable[str] = PLACES) -> Java:
    """A Java that is new enough; `Unavailable` says which were found instead, and what to install."""
    found = [java for home in homes(environ, places) if (java := look(home))]
    named = Path(environ["JAVA_HOME"]) if environ.get("JAVA_HOME") else None
    if chosen := choose(found, oldest, named):
        return chosen
    seen = ", ".join(sorted({f"{java.release} in {java.home}" for java in found})) or "no Java at all"
    raise Unavailable(
        f"Java {oldest} or later is missing (found: {seen}): install a JDK (Debian: apt-get install "
        f"openjdk-{oldest}-jdk-headless, or any vendor's package) or set JAVA_HOME to one"
    )
