"""Makes `.venv` hold what a make target needs: `python3 tools/environment.py SET ...`, sets being requirements/SET.txt.

Needs Python's standard library only. Everything is installed by pip from files that pin versions and hashes. A stamp
remembers what was installed, so that a second run costs nothing.
"""

from __future__ import annotations  # also an old Python must get as far as saying so

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / os.environ.get("HEADWATER_VENV", ".venv")
OLDEST = (3, 11)
NEWER_FIRST = ("python3.14", "python3.13", "python3.12", "python3.11")
ALWAYS = ("build", "runtime")


def main() -> None:
    sets = [*ALWAYS, *sys.argv[1:]]
    if sys.version_info[:2] < OLDEST:
        with_a_newer_python()
    missing = [name for name in sets if installed(name) != wanted(name)]
    if missing:
        install(missing)


def stamp(name: str) -> Path:
    return VENV / f".installed-{name}"


def installed(name: str) -> str:
    """What of a set stands in the environment, by its digest."""
    return stamp(name).read_text() if stamp(name).exists() else ""


def wanted(name: str) -> str:
    digest = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    digest.update(requirements(name).read_bytes())
    if name == "build":
        digest.update((ROOT / "pyproject.toml").read_bytes())
    return digest.hexdigest()


def requirements(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def with_a_newer_python() -> None:
    """Start again with the first Python that is new enough."""
    for name in NEWER_FIRST:
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            os.execv(found, [found, __file__, *sys.argv[1:]])
    sys.exit(f"headwater needs Python {OLDEST[0]}.{OLDEST[1]} or later; this is {sys.version.split()[0]}")


def install(names: list[str]) -> None:
    python = VENV / "bin" / "python"
    if not works(python):
        say(f"making an environment of Python {sys.version.split()[0]} in {VENV.name}")
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    say(f"installing {', '.join(names)}")
    files = [argument for name in names for argument in ("-r", str(requirements(name)))]
    subprocess.run([*pip, "--no-deps", "--require-hashes", *files], check=True)
    if "build" in names:
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)
    for name in names:
        stamp(name).write_text(wanted(name))


def works(python: Path) -> bool:
    """An environment that was moved, or whose Python has gone or is another one now, does not work."""
    try:
        code = "import sys; print(sys.version)"
        found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return found.returncode == 0 and found.stdout.strip() == sys.version.strip()


def say(text: str) -> None:
    print(f"environment: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"environment: failed: {' '.join(error.cmd)}")
