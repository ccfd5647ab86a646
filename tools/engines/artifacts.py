"""The pinned list of engines, and the cache in which each stands unpacked: fetched once, checked, never half there.

Nothing here names a host: Maven knows where artifacts come from. The cache lies outside the checkout, so that all
checkouts of a machine share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.engines.errors import Unavailable

LIST = Path(__file__).with_name("artifacts.toml")
FETCH_SECONDS = 1200.0
PIECE = 1 << 20


@dataclass(frozen=True)
class Artifact:
    """One archive to fetch: Maven coordinates `group:artifact:version:type`, its digest, the oldest Java it runs on."""

    name: str
    coordinates: str
    sha256: str
    java: int

    @property
    def version(self) -> str:
        return self.coordinates.split(":")[2]

    @property
    def folder(self) -> str:
        """Its folder in the cache; the digest is part of the name, so that a changed pin never meets old files."""
        return f"{self.name}-{self.version}-{self.sha256[:12]}"


def pinned(path: Path = LIST) -> dict[str, Artifact]:
    """All artifacts, by the engine's name."""
    return {name: Artifact(name=name, **entry) for name, entry in _table(path)["engines"].items()}


def cache(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Where engines are kept: `$HEADWATER_CACHE`, for root /var/cache/headwater, else the user's own cache.

    Root's engines run as an unprivileged user (they refuse root), who cannot look into root's home.
    """
    if named := environ.get("HEADWATER_CACHE"):
        return Path(named).absolute()
    if (os.geteuid() if uid is None else uid) == 0:
        return Path("/var/cache/headwater")
    if named := environ.get("XDG_CACHE_HOME"):
        return Path(named).absolute() / "headwater"
    return Path(environ.get("HOME") or Path.home()) / ".cache" / "headwater"


def installed(artifact: Artifact) -> Path | None:
    """The folder of an unpacked engine, None before it was fetched."""
    home = cache() / artifact.folder
    return home if home.is_dir() else None


def install(artifact: Artifact) -> Path:
    """The folder of the unpacked engine, fetched if need be; `Unavailable` says what is missing.

    Two processes may call this at once: one fetches, the other waits. What was not finished has another name.
    """
    if home := installed(artifact):
        return home
    folder = cache()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        with _locked(folder / f"{artifact.folder}.lock"):
            if home := installed(artifact):
                return home
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as aside:
                archive = _fetch(artifact, Path(aside))
                check(archive, artifact.sha256)
                unpacked = unpack(archive, Path(aside) / "unpacked")
                return unpacked.rename(folder / artifact.folder)
    except OSError as error:
        raise Unavailable(f"{artifact.name} cannot be kept below {folder} ({error}); set HEADWATER_CACHE") from error


def check(archive: Path, sha256: str) -> None:
    """Holds a fetched file against its pin; `Unavailable` when it is another file."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise Unavailable(f"{archive.name} is not the pinned file: its SHA-256 is {digest}, not {sha256} ({LIST.name})")


def unpack(archive: Path, into: Path) -> Path:
    """Unpack an archive with one folder at its top, readable for all whatever the umask; that folder."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            path = Path(opened.extract(entry, into))
            path.chmod(0o755 if (entry.external_attr >> 16) & 0o111 else 0o644)
    (top,) = into.iterdir()
    for folder in (top, *(path for path in top.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return top


def _fetch(artifact: Artifact, into: Path) -> Path:
    """Have Maven copy the artifact into a folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven is missing: install it (Debian: apt-get install maven)")
    goal = f"{_table(LIST)['fetcher']}:copy"
    what = [f"-Dartifact={artifact.coordinates}", f"-DoutputDirectory={into}"]
    command = [maven, "-q", "-B", "-Dstyle.color=never", goal, *what]
    try:
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not bring {artifact.coordinates} within {FETCH_SECONDS:.0f} s") from error
    found = list(into.glob("*.zip"))
    if done.returncode != 0 or len(found) != 1:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:12])
        raise Unavailable(f"Maven did not bring {artifact.coordinates} (status {done.returncode}):\n{said}")
    return found[0]


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text("utf-8"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
