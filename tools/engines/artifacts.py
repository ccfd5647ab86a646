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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.engines import java, plugins
from tools.engines.errors import Unavailable

LIST = Path(__file__).with_name("artifacts.toml")
FETCH_SECONDS = 1200.0
PIECE = 1 << 20


@dataclass(frozen=True)
class Part:
    """One file to fetch: Maven coordinates `group:artifact:version:type`, and its digest."""

    coordinates: str
    sha256: str


@dataclass(frozen=True)
class Artifact(Part):
    """An engine: the archive that it is unpacked from, the oldest Java it runs on, and what is put into it."""

    name: str
    java: int
    plugins: tuple[Part, ...] = ()

    @property
    def version(self) -> str:
        return self.coordinates.split(":")[2]

    @property
    def folder(self) -> str:
        """Its folder in the cache; the digest is part of the name, so that a changed pin never meets old files."""
        digests = "".join(part.sha256 for part in (self, *self.plugins))
        digest = hashlib.sha256(digests.encode()).hexdigest() if self.plugins else digests
        return f"{self.name}-{self.version}-{digest[:12]}"


def pinned(path: Path = LIST) -> dict[str, Artifact]:
    """All artifacts, by the engine's name."""
    return {name: _artifact(name, **entry) for name, entry in table(path)["engines"].items()}


def _artifact(name: str, *, plugins: Sequence[Mapping[str, str]] = (), **entry: Any) -> Artifact:
    return Artifact(name=name, plugins=tuple(Part(**plugin) for plugin in plugins), **entry)


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
        with locked(folder / artifact.folder):
            if home := installed(artifact):
                return home
            with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as aside:
                unpacked = unpack(fetch(artifact, Path(aside)), Path(aside) / "unpacked")
                _complete(artifact, unpacked, [fetch(part, Path(aside)) for part in artifact.plugins])
                _open(unpacked)
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
    _open(top)
    return top


def _open(top: Path) -> None:
    for folder in (top, *(path for path in top.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


def _complete(artifact: Artifact, home: Path, parts: Sequence[Path]) -> None:
    """Put into an engine what it does not bring."""
    if artifact.name == "opensearch-secured":
        plugins.add_security(home, parts)
    elif artifact.name == "elasticsearch-secured":
        plugins.add_analysers(home, artifact.version, java.find(artifact.java).home, artifact.java)


def fetch(part: Part, folder: Path) -> Path:
    """Have Maven copy a file into a folder of its own, and hold it against its pin."""
    into = folder / part.sha256
    into.mkdir()
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Maven is missing: install it (Debian: apt-get install maven)")
    goal = f"{table(LIST)['fetcher']}:copy"
    what = [f"-Dartifact={part.coordinates}", f"-DoutputDirectory={into}"]
    command = [maven, "-q", "-B", "-Dstyle.color=never", goal, *what]
    try:
        done = subprocess.run(
            command,
            cwd=into,
            stdin=subprocess.DEVNULL,  # a Maven that is started in the background would stop at the terminal
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"Maven did not bring {part.coordinates} within {FETCH_SECONDS:.0f} s") from error
    found = list(into.iterdir())
    if done.returncode != 0 or len(found) != 1:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:12])
        raise Unavailable(f"Maven did not bring {part.coordinates} (status {done.returncode}):\n{said}")
    check(found[0], part.sha256)
    return found[0]


def table(path: Path = LIST) -> dict[str, Any]:
    """The pinned list as it stands."""
    return tomllib.loads(path.read_text("utf-8"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among processes with what is to be at this path of the cache."""
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
