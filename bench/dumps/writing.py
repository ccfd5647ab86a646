"""Writing a Resource Dump of small files: against `zip`, which packs alone, and `resync-build`, which digests, too.

Two things are timed: a dump of a folder that is published already (nothing is left but packing, as for `zip`), and all
of `publish --dump` from an empty state (digests, lists, packages: what `resync-build` does, and more).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bench.dumps import tools
from bench.dumps.content import FILES, QUICK_FILES, random_files, text_files
from bench.dumps.program import BASE_URL, can, headwater, not_there
from bench.rows import Row, in_turns, row


def run(quick: bool) -> list[Row]:
    """Deflated against zip and resync-build; stored against zip."""
    count, rounds = (QUICK_FILES, 1) if quick else (FILES, 3)
    work = f"Resource Dump of {count:,} × 4 KiB"
    if gone := tools.missing(work, "zip"):
        return [gone]
    if not can("publish", "--dump"):
        return [not_there(work, "publish", "--dump")]
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        base = Path(name)
        text = DumpWriting(text_files(base / "text", count), base / "of-text")
        octets = DumpWriting(random_files(base / "octets", count), base / "of-octets")
        return [*deflated(text, work, rounds), stored(octets, work, rounds)]


def deflated(bench: DumpWriting, work: str, rounds: int) -> list[Row]:
    """Text: packing alone against `zip -6`, everything against `resync-build`."""
    packed, zipped = in_turns([bench.packed, lambda: bench.zipped(6)], rounds)
    ours, theirs = in_turns([bench.everything, bench.by_resync], 1 if rounds == 1 else 2)
    small = bench.octets_of_packages() / bench.package.stat().st_size
    note = (
        f"text, published before; packages of {small:.2f} times the octets of zip's; sha-256 of each file and package"
    )
    whole = "text; digests, lists, dump, from nothing"
    return [
        row(f"pack a {work}, deflated", packed, "zip -6 -r", zipped, bar=0.8, goal=2, note=note),
        row(f"publish and pack a {work}, deflated", ours, "resync-build, sha-256", theirs, bar=2.5, note=whole),
        row(f"publish and pack a {work}, deflated", ours, "zip -6 -r", zipped, note=whole),
    ]


def stored(bench: DumpWriting, work: str, rounds: int) -> Row:
    """Random octets of a compressed media type, against `zip -0`."""
    packed, zipped = in_turns([bench.packed, lambda: bench.zipped(0)], rounds)
    note = "random octets named .jpg, published before; sha-256 of each file and package"
    return row(f"pack a {work}, stored", packed, "zip -0 -r", zipped, bar=0.6, goal=1, note=note)


class DumpWriting:
    """One folder that is published and packed again and again."""

    def __init__(self, files: Path, base: Path) -> None:
        self.files = files
        self.base = base
        self.package = base / "peer.zip"
        self.out = base / "out"
        self.published = base / "published"
        base.mkdir()
        self._publish(self.published)

    def packed(self) -> float:
        """Seconds of adding the dump to a folder that is published."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.published, self.out)
        return self._publish(self.out, "--dump")

    def everything(self) -> float:
        """Seconds of publishing with a dump into an empty folder."""
        shutil.rmtree(self.out, ignore_errors=True)
        return self._publish(self.out, "--dump")

    def by_resync(self) -> float:
        return tools.resync_dump(self.files, self.base / "peer", f"{BASE_URL}/files/resources")

    def zipped(self, level: int) -> float:
        return tools.zipped(self.files, self.package, level)

    def octets_of_packages(self) -> int:
        return sum(path.stat().st_size for path in self.out.glob("files/resourcedump/*.zip"))

    def _publish(self, out: Path, *more: str) -> float:
        where = ["--files", str(self.files), "--to", str(out), "--base-url", BASE_URL, "--resources", "none"]
        return headwater("publish", *where, "--hash", "sha-256", *more)
