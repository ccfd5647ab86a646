"""Reading and writing documents, against the library `resync` and against `xmllint --stream`, C's own limit.

Each contestant runs in a process of its own and reports the seconds of the work alone; all take turns.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from bench.rows import Row, in_turns, peak_mib, row, timed

READ_OURS = """
import sys, time
from headwater.spec.reader import Reader
started = time.perf_counter()
reader, count = Reader(), 0
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(1 << 17):
        count += len(reader.feed(chunk))
count += len(reader.close())
assert count == int(sys.argv[2]), count
print(time.perf_counter() - started)
"""
KEEP_OURS = (
    READ_OURS.replace("count += len(reader.feed(chunk))", "kept += reader.feed(chunk)")
    .replace("count = Reader(), 0", "kept = Reader(), []")
    .replace("count += len(reader.close())", "kept += reader.close(); count = len(kept)")
)
READ_RESYNC = """
import sys, time
from resync.resource_list import ResourceList
started = time.perf_counter()
found = ResourceList()
with open(sys.argv[1], "rb") as file:
    found.parse(fh=file)
assert len(found) == int(sys.argv[2])
print(time.perf_counter() - started)
"""
WRITE_OURS = """
import sys, time
from headwater.spec.reader import read_bytes
from headwater.spec.writer import write_document
read = read_bytes(open(sys.argv[1], "rb").read())
document, entries = read.document, read.entries
started = time.perf_counter()
octets = sum(map(len, write_document(document, entries)))
print(time.perf_counter() - started)
"""
WRITE_RESYNC = """
import sys, time
from resync.resource_list import ResourceList
found = ResourceList()
with open(sys.argv[1], "rb") as file:
    found.parse(fh=file)
started = time.perf_counter()
octets = len(found.as_xml())
print(time.perf_counter() - started)
"""
WRITE_STREAM = """
import sys, datetime
from headwater.spec.kinds import Kind
from headwater.spec.records import Document, Entry, Link
from headwater.spec.writer import DocumentWriter
at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
head = Document(kind=Kind.RESOURCE_LIST, at=at, links=(Link(rel="up", href="http://example.org/up"),))
for _ in range(int(sys.argv[1]) // 50_000 or 1):
    writer = DocumentWriter(head)
    for block in range(50_000 // 500):
        writer.entries([Entry(loc=f"http://example.org/{n}", lastmod=at, length=n, type="a/b") for n in range(500)])
"""


def resource_list(path: Path, count: int, *, links: bool = False) -> None:
    """A Resource List with all that matters: loc, lastmod, two digests, length, type; perhaps a link in each entry."""
    link = '<rs:ln rel="describedby" href="http://example.org/about/{}"/>' if links else ""
    with path.open("w") as file:
        file.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
            'xmlns:rs="http://www.openarchives.org/rs/terms/">\n<rs:ln rel="up" href="http://example.org/up"/>'
            '<rs:md capability="resourcelist" at="2024-01-01T00:00:00Z"/>\n'
        )
        for number in range(count):
            octets = b"%d" % number
            file.write(
                f"<url><loc>http://example.org/resources/{number // 1000:05d}/item-{number:08d}.xml</loc>"
                f"<lastmod>2024-03-{number % 28 + 1:02d}T{number % 24:02d}:{number % 60:02d}:11Z</lastmod>"
                f'<rs:md hash="md5:{hashlib.md5(octets).hexdigest()} sha-256:{hashlib.sha256(octets).hexdigest()}" '
                f'length="{number}" type="application/xml"/>{link.format(number)}</url>\n'
            )
        file.write("</urlset>\n")


def reported(code: str, *arguments: str) -> float:
    """The seconds that a contestant reports of itself."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def run(quick: bool) -> list[Row]:
    """The rows of the codec; `quick` only shows that it runs."""
    count, many, rounds = (5_000, 20_000, 1) if quick else (50_000, 1_000_000, 5)
    with tempfile.TemporaryDirectory(prefix="headwater-codec-") as folder:
        small, large, linked, odd = (Path(folder) / f"{name}.xml" for name in ("small", "large", "linked", "odd"))
        resource_list(small, count)
        resource_list(large, many)
        resource_list(linked, count, links=True)
        odd.write_text(small.read_text().replace('"', "'"))
        return [
            *_speed(small, linked, odd, count, rounds),
            *_size(small, large, count, many),
        ]


def _speed(small: Path, linked: Path, odd: Path, count: int, rounds: int) -> list[Row]:
    ours, kept, peer = in_turns(
        [partial(reported, code, str(small), str(count)) for code in (READ_OURS, KEEP_OURS, READ_RESYNC)], rounds
    )
    linked_ours, linked_peer = in_turns(
        [partial(reported, code, str(linked), str(count)) for code in (READ_OURS, READ_RESYNC)], rounds
    )
    odd_ours, odd_peer = in_turns(
        [partial(reported, code, str(odd), str(count)) for code in (READ_OURS, READ_RESYNC)], rounds
    )
    written, peer_written = in_turns(
        [partial(reported, code, str(small)) for code in (WRITE_OURS, WRITE_RESYNC)], rounds
    )
    listed = f"{count:,}-entry Resource List"
    rows = [
        row(f"read a {listed}", ours, "resync", peer, bar=8, goal=20, note=f"{count / ours:,.0f} entries/s"),
        row(f"read a {listed}, all entries kept", kept, "resync", peer, bar=8, goal=20),
        row("read it with a link in each entry", linked_ours, "resync", linked_peer, goal=8),
        row("read one of an unusual shape (single quotes)", odd_ours, "resync", odd_peer, goal=8, note="expat alone"),
        row(
            f"write a {listed}",
            written,
            "resync",
            peer_written,
            bar=10,
            goal=10,
            note=f"{count / written:,.0f} entries/s",
        ),
    ]
    if xmllint := shutil.which("xmllint"):
        (limit,) = in_turns([partial(timed, [xmllint, "--stream", "--noout", str(small)])], rounds)
        rows.append(row(f"read a {listed}", ours, "xmllint --stream", limit, goal=0.5))
    return rows


def _size(small: Path, large: Path, count: int, many: int) -> list[Row]:
    (seconds,) = in_turns([partial(reported, READ_OURS, str(large), str(many))], 1)
    (of_small,) = in_turns([partial(reported, READ_OURS, str(small), str(count))], 1)
    peak_small, peak_large = (
        peak_mib(READ_OURS, str(path), str(number)) for path, number in ((small, count), (large, many))
    )
    written_small, written_large = (peak_mib(WRITE_STREAM, str(number)) for number in (count, many))
    return [
        {
            "work": f"peak memory, reading {many:,} entries",
            "ours": f"{peak_large:.0f} MiB",
            "against": f"{count:,} entries",
            "other": f"{peak_small:.0f} MiB",
            "bar": "within 32 MiB",
            "goal": "≤ 25 MiB",
            "met": peak_large - peak_small <= 32,
            "note": f"{many / seconds:,.0f} entries/s, {count / of_small:,.0f} in the small one",
        },
        {
            "work": f"peak memory, writing {many:,} entries",
            "ours": f"{written_large:.0f} MiB",
            "against": f"{count:,} entries",
            "other": f"{written_small:.0f} MiB",
            "goal": "≤ 25 MiB",
            "met": written_large - written_small <= 32,
        },
    ]
