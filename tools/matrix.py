"""The tests on every version of Python that can be found here: `python3 tools/matrix.py [arguments of pytest]`.

Interpreters are looked for on the path, among those of pyenv and of uv. Each gets an environment of its own beside
`.venv`. What was not run is said at the end, loudly; the exit status is 1 when a version has failed, and 0 when some
are missing. Needs Python's standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EVERYTHING = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def main(arguments: list[str]) -> int:
    missing, failed = [], []
    for wanted in VERSIONS:
        python = interpreter(wanted)
        if python is None:
            missing.append(wanted)
        elif not passes(python, wanted, arguments):
            failed.append(wanted)
    done = [one for one in VERSIONS if one not in (*missing, *failed)]
    say(f"passed on {', '.join(done) or 'none'}")
    if missing:
        say(f"NOT RUN, no interpreter: {', '.join(missing)}")
    if failed:
        say(f"FAILED on {', '.join(failed)}")
    return 1 if failed or not done else 0


def interpreter(wanted: str) -> str | None:
    """An interpreter of this version that starts, and is no shim of one that is not there."""
    homes = (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions", uv_home())
    found = [shutil.which(f"python{wanted}")]
    for home in homes:
        found += [str(path) for path in sorted(home.glob(f"*{wanted}.*/bin/python{wanted}"), reverse=True)]
    return next((path for path in found if path is not None and version_of(path) == wanted), None)


def uv_home() -> Path:
    data = os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")
    return Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path(data) / "uv" / "python"))


def version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return told.stdout.strip()


def passes(python: str, wanted: str, arguments: list[str]) -> bool:
    folder = f".venv-{wanted}"
    environment = {**os.environ, "HEADWATER_VENV": folder}
    say(f"Python {wanted}: {python}")
    made = subprocess.run([python, "tools/environment.py", "test"], cwd=ROOT, env=environment, check=False)
    if made.returncode != 0:
        return False
    tests = [str(ROOT / folder / "bin" / "python"), "-m", "pytest", "-q", *(arguments or EVERYTHING)]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode == 0


def say(text: str) -> None:
    print(f"matrix: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
