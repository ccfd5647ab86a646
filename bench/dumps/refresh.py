"""Refreshing a Resource Dump after 1,000 neighbouring changes among a million files: only the pages they lie on.

The changed files are a whole part of the tree, so that they lie on one or two pages, whose packages are made anew. The
same changes are published without a dump as well: what the dump adds is the difference, and it is compared with packing
everything.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.dumps.content import A_FOLDER, text_files
from bench.dumps.program import BASE_URL, can, headwater, not_there
from bench.rows import Row

FILES, QUICK_FILES = 1_000_000, 20_000
OCTETS = 500
CHANGES = 1_000
MOST_PACKAGES = 10
"""Those of two pages of 50,000 resources, each of 10,000."""


def run(quick: bool) -> list[Row]:
    """One row."""
    count = QUICK_FILES if quick else FILES
    work = f"dump after {CHANGES:,} changes among {count:,} resources of {OCTETS} octets"
    if not can("publish", "--dump"):
        return [not_there(work, "publish", "--dump")]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        bench = Refreshing(text_files(base / "files", count, OCTETS), base)
        bench.published("lists")
        before = bench.published("lists", dump=True)
        packages = bench.packages("lists")
        bench.published("bare")
        bench.change()
        bare = bench.published("bare")
        ours = bench.published("lists", dump=True)
        written = bench.packages("lists") - packages
    return [
        {
            "work": work,
            "ours": f"{ours - bare:.3g} s",
            "against": "packing all of it",
            "other": f"{before - bare:.3g} s",
            "ratio": (before - bare) / max(ours - bare, 0.001),
            "met": 0 < len(written) <= MOST_PACKAGES,
            "note": f"{len(written)} of {len(packages)} packages written; finding and listing the changes"
            f" ({bare:.3g} s) is not counted on either side",
        }
    ]


class Refreshing:
    """A folder that is published with a dump and without one, each as its own source."""

    def __init__(self, files: Path, base: Path) -> None:
        self._files = files
        self._base = base

    def published(self, name: str, *, dump: bool = False) -> float:
        """Seconds of a publication. The packages of a page are made anew when a hundredth of it has changed."""
        config = self._base / f"{name}.toml"
        lines = [f'state = "{self._base / name}"', f'base_url = "{BASE_URL}"', "[[set]]", f'files = "{self._files}"']
        lines += ['hashes = ["sha-256"]', f"dump = {str(dump).lower()}", "dump_share = 0.01"]
        config.write_text("\n".join(lines) + "\n")
        return headwater("publish", str(config))

    def packages(self, name: str) -> set[str]:
        """The names of the packages; a package that is written anew has another."""
        return {path.name for path in (self._base / name).rglob("resourcedump/*.zip")}

    def change(self) -> None:
        """Write other octets into the files of some folders, as many as before."""
        for number in range(CHANGES // A_FOLDER):
            for path in (self._files / f"{number:04d}").iterdir():
                path.write_bytes(path.read_bytes()[::-1])
