"""Memory while a Resource Dump of 20 GiB is packed and unpacked: large sparse files, deflated and stored.

Each MiB of a file begins with 4 KiB of random octets and is a hole otherwise. Deflated, that is 0.5 % of its length:
far from what a reader takes for a bomb, and the packages have little room on the disk; the copy has all of it. So it
lies in `/var/tmp`, which is on a disk, rather than where temporary files are. When there is less room than the copy
takes, fewer files are measured and the row says so.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

from bench.dumps import tools
from bench.dumps.program import BASE_URL, HEADWATER, PeakMemory, answers, can, not_there, running
from bench.rows import Row

TOTAL, QUICK_TOTAL = 20 << 30, 256 << 20
A_FILE, QUICK_FILE = 256 << 20, 16 << 20
APART = 1 << 20
RANDOM = 4096
SPARE = 4 << 30
"""Octets of the disk that are left free."""
BAR, GOAL = 200, 100
"""MiB."""
PLACE = "/var/tmp"


def run(quick: bool) -> list[Row]:
    """A row for packing, one for unpacking."""
    total, a_file = (QUICK_TOTAL, QUICK_FILE) if quick else (TOTAL, A_FILE)
    if not (can("serve", "--dump") and can("publish", "--dump") and can("sync", "--prefer")):
        return [not_there("memory of packing and unpacking 20 GiB", "serve", "--dump, or `sync` no --prefer")]
    with tempfile.TemporaryDirectory(
        prefix="headwater-bench-", dir=PLACE if os.access(PLACE, os.W_OK) else None
    ) as name:
        base = Path(name)
        count = min(total, max(a_file, shutil.disk_usage(base).free - SPARE)) // a_file
        said = f"{count * a_file / 2**30:.3g} GiB, {count} sparse files"
        if count * a_file < total:
            said += " (NOT ALL: the disk has too little room)"
        files = sparse_files(base / "files", count, a_file)
        packing, unpacking = PeakMemory(), PeakMemory()
        out, copy = base / "out", base / "copy"
        words = ["--files", str(files), "--to", str(out), "--base-url", BASE_URL, "--resources", "none"]
        packed = packing.run([*HEADWATER, "publish", *words, "--hash", "sha-256", "--dump"])
        packages = sum(path.stat().st_size for path in out.rglob("*.zip"))
        shutil.rmtree(out)
        options = ["--files", str(files), "--state", str(base / "state"), "--hash", "sha-256", "--dump"]
        with running("serve", *options) as (url, _):
            tools.until(lambda: b".zip" in answers(f"{url}/files/resourcedump.xml"))
            command = [*HEADWATER, "sync", "--prefer", "dumps", url, str(copy)]
            unpacked = unpacking.run(command)
        assert sum(path.stat().st_size for path in copy.rglob("*.txt")) == count * a_file
    size = f"packages of {packages / 2**20:,.0f} MiB"
    return [
        memory_row(
            f"memory, packing {said}", packing.mib, f"{size}; {packed:.3g} s, digests and lists included", quick
        ),
        memory_row(f"memory, unpacking {said}", unpacking.mib, f"{size}; {unpacked:.3g} s, verified and placed", quick),
    ]


def memory_row(work: str, mib: float, note: str, quick: bool) -> Row:
    """The peak of a program and its children against the bar."""
    verdict = "" if quick else "goal" if mib <= GOAL else "bar" if mib <= BAR else "below the bar"
    row: Row = {"work": work, "ours": f"{mib:.0f} MiB", "against": "the bar, goal 100 MiB", "other": f"{BAR} MiB"}
    return row | {"note": note, "met": mib <= BAR, "verdict": verdict}


def sparse_files(folder: Path, count: int, octets: int) -> Path:
    """So many files of a text's media type, each of so many octets."""
    folder.mkdir(parents=True)
    chance = random.Random(3)
    for number in range(count):
        with (folder / f"large{number:03d}.txt").open("wb", buffering=0) as file:
            for place in range(0, octets, APART):
                file.seek(place)
                file.write(chance.randbytes(RANDOM))
            file.truncate(octets)
    return folder
