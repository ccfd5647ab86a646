"""The short table of bench/results.md and two charts, made from its long table: `python -m bench.charts`.

`make bench ARGS=--write` runs it. The charts are docs/pictures/speed.svg and memory.svg; each has a background of its
own, and both a light and a dark form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.pictures import PICTURES, Picture

PAGE = Path(__file__).resolve().parent / "results.md"
BEGIN, END = "<!-- short: begin (written by `make bench ARGS=--write`) -->", "<!-- short: end -->"

SPEED = {
    ("read a 50,000-entry Resource List", "resync"): "Read a Resource List of 50,000 entries",
    ("write a 50,000-entry Resource List", "resync"): "Write a Resource List of 50,000 entries",
    ("publish 100,000 files, md5 and sha-256", "resync-build, same hashes"): "Publish 100,000 files",
    ("pack a Resource Dump of 20,000 × 4 KiB, deflated", "zip -6 -r"): "Pack a dump of 20,000 files",
    ("baseline of 20,000 × 4 KiB, verified", "resync-sync --hash sha-256"): "Copy 20,000 files, one by one",
    ("baseline of 20,000 × 4 KiB from a dump, verified", "resync-sync --hash sha-256"): "Copy 20,000 files by a dump",
    ("baseline of 20,000 × 4 KiB from a dump, verified", "rsync -a from its daemon"): "Copy 20,000 files by a dump",
    (
        "baseline of 20,000 × 4 KiB over 20 ms, on demand, verified",
        "curl --parallel-max 64, unverified",
    ): "Copy 20,000 files, 20 ms away",
    ("increment of 1,000 changes over 20,000", "resync-sync, unverified"): "Copy 1,000 changes",
    ("poll, nothing changed", "resync-sync --incremental"): "Look for changes, find none",
    ("audit of 20,000 files", "sha256sum -c"): "Audit 20,000 files",
    (
        "patch between two sorted datasets of 10,000,000 statements",
        "sort | comm",
    ): "Compare RDF files of 10 million lines",
    ("first load of 1,000,000 resources into OpenSearch", "bulk"): "Load a million resources into OpenSearch",
}
"""Rows of the long table (work, other program) that the short one has, and what they are called there."""

MEMORY = {
    "peak memory, reading 1,000,000 entries": ("Read lists of a million entries", 32),
    "peak memory, writing 1,000,000 entries": ("Write lists of a million entries", 25),
    "memory of publisher and server together, 100,000 resources": ("Serve 100,000 resources", 300),
    "memory of publisher and server together, 1,000,000 resources": ("Serve a million resources", 300),
    "memory, packing 20 GiB, 80 sparse files": ("Pack 20 GiB", 200),
    "memory, unpacking 20 GiB, 80 sparse files": ("Unpack 20 GiB", 200),
    "memory of it, over all processes, 10,000,000 statements": ("Compare RDF files of 10 million lines", 200),
}
"""Rows of the long table that say how much memory is used, what they are called, and the limit in MiB."""


@dataclass
class Result:
    """One row of the short table."""

    task: str
    ours: str
    against: str
    other: str
    ratio: float
    bar: float | None


def rows(text: str) -> Iterable[dict[str, str]]:
    """The rows of the long table of the page."""
    lines = re.findall(
        r"^\| .* \|$", text[text.index("<!-- table: begin") : text.index("<!-- table: end")], re.MULTILINE
    )
    names, *others = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
    return (dict(zip(names, (cell.replace("\\|", "|") for cell in cells), strict=True)) for cells in others)


def number(text: str) -> float | None:
    found = re.search(r"[\d.]+", text.replace(",", ""))
    return float(found[0]) if found else None


def results(text: str) -> list[Result]:
    """What the short table has, in its order."""
    there = {(row["work"], row["against"]): row for row in rows(text)}
    found = []
    for key, task in SPEED.items():
        if key in there and (ratio := number(there[key]["ratio"])):
            row = there[key]
            found.append(Result(task, row["ours"], key[1], row["other"], ratio, number(row["bar"])))
    return found


def short_table(found: list[Result], when: str) -> str:
    lines = [when, "", "| What | Headwater | The other | Its time | Ratio | Bar |", "|---|---|---|---|---|---|"]
    for one in found:
        bar = "" if one.bar is None else f"≥ {one.bar:g}×"
        missed = " (not reached)" if one.bar is not None and one.ratio < one.bar else ""
        against = one.against.replace(" | ", ", ")  # no table has a bar in code
        lines.append(f"| {one.task} | {one.ours} | {against} | {one.other} | {one.ratio:.3g}× | {bar}{missed} |")
    return "\n".join(lines)


LEFT, WIDTH, ROW = 310, 350, 30


def speed_chart(found: list[Result]) -> str:
    """Bars of ratios, by their logarithm: 1 is as fast as the other program."""
    height = 96 + ROW * len(found)
    picture = Picture(760, height, "How fast Headwater is", "Time of another program divided by the time of Headwater.")
    least, most = math.log(0.4), math.log(25)

    def x(ratio: float) -> float:
        return LEFT + WIDTH * (min(max(math.log(ratio), least), most) - least) / (most - least)

    picture.text(24, 34, "Times as fast as the other program", "title")
    for ratio in (0.5, 1, 2, 5, 10, 20):
        picture.line(x(ratio), 54, x(ratio), height - 30, "one" if ratio == 1 else "grid")
        picture.text(x(ratio), height - 14, f"{ratio:g}×", "small middle")
    for n, one in enumerate(found):
        y = 62 + ROW * n
        start, end = sorted((x(1), x(one.ratio)))
        picture.text(LEFT - 12, y + 9, one.task, "label end")
        picture.text(LEFT - 12, y + 21, f"against {one.against}", "small end")
        picture.rect(start, y + 3, max(end - start, 2), 16, "bar" if one.ratio >= 1 else "bar slower", radius=2)
        after = max(end, x(1))
        if one.bar is not None and after < x(one.bar) < after + 40:
            after = x(one.bar)
        picture.text(after + 6, y + 15, f"{one.ratio:.2g}×", "small")
        if one.bar is not None:
            picture.line(x(one.bar), y, x(one.bar), y + 22, "least")
    picture.text(736, 34, "┃ the least that is asked for", "small end least-text")
    return picture.svg()


def memory_chart(text: str) -> str:
    """Bars of MiB, each with its limit."""
    there = {row["work"]: row for row in rows(text)}
    found = [(*MEMORY[work], number(there[work]["ours"]) or 0) for work in MEMORY if work in there]
    height = 96 + ROW * len(found)
    picture = Picture(760, height, "How much memory Headwater uses", "Peak memory in MiB, and the limit for each task.")

    def x(size: float) -> float:
        return LEFT + WIDTH * size / 320

    picture.text(24, 34, "Peak memory in MiB", "title")
    for mark in (0, 100, 200, 300):
        picture.line(x(mark), 54, x(mark), height - 30, "one" if mark == 0 else "grid")
        picture.text(x(mark), height - 14, f"{mark}", "small middle")
    for n, (task, limit, size) in enumerate(found):
        y = 62 + ROW * n
        picture.text(LEFT - 12, y + 15, task, "label end")
        picture.rect(x(0), y + 3, x(size) - x(0), 16, "bar", radius=2)
        picture.text(x(max(size, limit if limit - size < 30 else 0)) + 6, y + 15, f"{size:g}", "small")
        picture.line(x(limit), y, x(limit), y + 22, "least")
    picture.text(736, 34, "┃ the most that is allowed", "small end least-text")
    return picture.svg()


def drawn(text: str) -> dict[str, str]:
    """The name and the text of each chart, from the page."""
    return {"speed.svg": speed_chart(results(text)), "memory.svg": memory_chart(text)}


def page_with_short_table(text: str) -> str:
    when = re.search(r"^\d{4}-\d\d-\d\d", text[text.index("<!-- table: begin") :], re.MULTILINE)
    table = short_table(
        results(text), f"Two cores, {when[0] if when else 'date unknown'}; seconds unless it says more."
    )
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n\n{table}\n\n{text[end:]}"


def main() -> None:
    text = page_with_short_table(PAGE.read_text("utf-8"))
    PAGE.write_text(text, "utf-8")
    for name, svg in drawn(text).items():
        (PICTURES / name).write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
