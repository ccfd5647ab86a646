"""The version, in one place: packaging, the program and its requests all read it here; and which build it is."""

from functools import cache
from pathlib import Path

__version__ = "0.2.0"


@cache
def build() -> str:
    """The date and commit of this build, as `hatch_build.py` has noted them; empty in a checkout that is worked in."""
    try:
        return (Path(__file__).parent / "build.txt").read_text("ascii").strip()
    except OSError:
        return ""


def whole_version() -> str:
    """The version with its build, as a wheel has it: `0.2.0+20261130.1a2b3c4d5e`."""
    return f"{__version__}+{build()}" if build() else __version__
