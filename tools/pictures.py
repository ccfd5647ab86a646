"""Draws docs/pictures/*.svg: `python -m tools.pictures`. A test fails when a drawing and this module differ.

Each drawing has a background of its own, a title, a description, and colours for light and for dark; it needs no font
and no other file. The charts of the benchmarks are drawn by `bench.charts`.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"

LIGHT = {
    "ground": "#ffffff",
    "edge": "#d5dbe3",
    "ink": "#1b2733",
    "quiet": "#51606f",
    "source": "#dceafb",
    "source-edge": "#2b6cb0",
    "copy": "#dff3e4",
    "copy-edge": "#2f855a",
    "hub": "#fdebd3",
    "hub-edge": "#b7610b",
    "plain": "#f1f4f7",
    "plain-edge": "#7b8794",
    "warn": "#fbe1e1",
    "warn-edge": "#b83232",
}
DARK = {
    "ground": "#141b23",
    "edge": "#36424f",
    "ink": "#e8edf2",
    "quiet": "#a5b2bf",
    "source": "#1c3550",
    "source-edge": "#6fb1f5",
    "copy": "#1a3d2a",
    "copy-edge": "#6fd194",
    "hub": "#4a3213",
    "hub-edge": "#f0ad55",
    "plain": "#222c37",
    "plain-edge": "#8b98a6",
    "warn": "#4a2022",
    "warn-edge": "#f08a8a",
}
KINDS = ("source", "copy", "hub", "plain", "warn")


def _style() -> str:
    def colours(of: dict[str, str]) -> str:
        return ";".join(f"--{name}:{colour}" for name, colour in of.items())

    kinds = "".join(f".{kind}{{fill:var(--{kind});stroke:var(--{kind}-edge);stroke-width:1.5}}" for kind in KINDS)
    return (
        f"svg{{{colours(LIGHT)}}}@media(prefers-color-scheme:dark){{svg{{{colours(DARK)}}}}}"
        "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif;fill:var(--ink)}"
        ".ground{fill:var(--ground);stroke:var(--edge)}"
        f"{kinds}"
        ".title{font-size:16px;font-weight:600}.head{font-weight:600}.small{font-size:11.5px;fill:var(--quiet)}"
        ".label{font-size:12.5px}.middle{text-anchor:middle}.end{text-anchor:end}"
        ".code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px}"
        ".arrow{fill:none;stroke:var(--quiet);stroke-width:1.6;marker-end:url(#tip)}"
        ".dashed{stroke-dasharray:5 4}.tip{fill:var(--quiet)}"
        ".grid{stroke:var(--edge)}.one{stroke:var(--plain-edge)}"
        ".bar{fill:var(--source-edge)}.slower{fill:var(--plain-edge)}"
        ".least{stroke:var(--hub-edge);stroke-width:3}.least-text{fill:var(--hub-edge)}"
        ".public{fill:var(--warn-edge)}.maybe{fill:var(--warn);stroke:var(--warn-edge);stroke-dasharray:5 3}"
        ".on{fill:var(--ground)}.private{fill:var(--copy);stroke:var(--copy-edge)}"
    )


class Picture:
    """An SVG of a given size, filled piece by piece."""

    def __init__(self, width: int, height: int, title: str, description: str):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
            f"<style>{_style()}</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            ' orient="auto-start-reverse"><path class="tip" d="M0 0L10 5L0 10z"/></marker></defs>',
            f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>',
        ]

    def rect(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 7) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.5g}" height="{height:g}" rx="{radius:g}"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        named = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{named} x="{x:.5g}" y="{y:g}">{escape(text)}</text>')

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str) -> None:
        self.parts.append(f'<line class="{kind}" x1="{x:.5g}" y1="{y:g}" x2="{to_x:.5g}" y2="{to_y:g}"/>')

    def arrow(self, *points: tuple[float, float], kind: str = "") -> None:
        """An arrow along these points."""
        way = "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path class="{f"arrow {kind}".strip()}" d="M{way}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, head: str, *lines: str) -> None:
        """A box with a heading and lines in its middle; a line that begins with $ is code."""
        self.rect(x, y, width, height, kind)
        top = y + height / 2 - 8.5 * len(lines) + 4.5
        self.text(x + width / 2, top, head, "head middle")
        for n, line in enumerate(lines, 1):
            code = line.startswith("$")
            self.text(x + width / 2, top + 17 * n, line.removeprefix("$"), "code middle" if code else "small middle")

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>", ""])


def roles() -> Picture:
    picture = Picture(
        760,
        330,
        "The three roles of Headwater",
        "A source lists what it has and what changed. A destination copies and verifies it over HTTP. A hub tells the"
        " destination of each change.",
    )
    picture.text(24, 34, "Three roles, one program", "title")
    picture.box(
        24, 190, 140, 92, "plain", "Your collection", "a folder of files,", "records of a program,", "RDF datasets"
    )
    picture.box(
        214,
        180,
        150,
        112,
        "source",
        "Source",
        "lists what it has",
        "and what changed",
        "$headwater serve",
        "$headwater publish",
    )
    picture.box(
        476,
        180,
        150,
        112,
        "copy",
        "Destination",
        "copies, verifies,",
        "follows, audits",
        "$headwater sync",
        "$headwater audit",
    )
    picture.box(345, 56, 150, 76, "hub", "Hub", "tells of each change", "$headwater hub")
    picture.box(668, 190, 72, 92, "plain", "Copy", "files,", "an index,", "a store")
    picture.arrow((164, 236), (212, 236))
    picture.arrow((626, 236), (666, 236))
    picture.arrow((474, 250), (366, 250))
    picture.text(420, 242, "asks by HTTP", "small middle")
    picture.arrow((366, 216), (474, 216))
    picture.text(420, 208, "lists, files, ZIP", "small middle")
    picture.arrow((289, 180), (289, 94), (343, 94))
    picture.text(280, 110, "“this changed”", "small end")
    picture.arrow((495, 94), (551, 94), (551, 178))
    picture.text(560, 110, "“this changed”", "small")
    picture.text(24, 312, "Any other ResourceSync source or destination can take the place of either side.", "small")
    return picture


def resource_set() -> Picture:
    picture = Picture(
        760,
        420,
        "How a set becomes lists",
        "The Capability List of a set names a Resource List in parts, Change Lists of which the newest is open, and,"
        " if you switch it on, a Resource Dump with a ZIP package or more for each part.",
    )
    picture.text(24, 34, "A set and its documents", "title")
    picture.box(24, 150, 120, 120, "plain", "Set", "120,000", "resources", "in a catalog")
    picture.box(190, 168, 126, 84, "source", "Capability List", "names what", "the set offers")
    picture.arrow((144, 210), (188, 210))
    rows = (
        (
            62,
            "Resource List",
            "what is there",
            ("50,000", "50,000", "20,000"),
            "a part is written again when it has changed",
        ),
        (
            180,
            "Change List",
            "what changed",
            ("closed", "closed", "open"),
            "a closed list never changes; the open one grows",
        ),
        (
            298,
            "Resource Dump",
            "content, in packages",
            ("ZIP", "ZIP, ZIP", "ZIP"),
            "optional; packages for each part of the Resource List",
        ),
    )
    for y, head, line, parts, below in rows:
        kind = "copy" if head == "Resource Dump" else "source"
        picture.box(366, y, 136, 60, kind, head, line)
        picture.arrow((316, 210), (341, 210), (341, y + 30), (364, y + 30))
        for n, part in enumerate(parts):
            x = 528 + 72 * n
            is_open = part == "open"
            picture.rect(x, y + 8, 66, 44, f"{kind} dashed" if is_open else kind)
            picture.text(x + 33, y + 34, part, "small middle")
        picture.arrow((502, y + 30), (526, y + 30))
        picture.text(736, y + 78, below, "small end")
    picture.text(
        24, 398, "A change touches the open Change List at once, and one part of the Resource List later.", "small"
    )
    return picture


def sync_run() -> Picture:
    picture = Picture(
        760,
        300,
        "A run of headwater sync",
        "Six steps in order: discover, plan, transfer, verify, place, save progress. If a run is killed at any step,"
        " the next run continues.",
    )
    picture.text(24, 34, "One run of headwater sync", "title")
    steps = (
        ("1 Discover", "reads the", "Capability List", "of each set"),
        ("2 Plan", "reads what has", "changed, or the", "whole list"),
        ("3 Transfer", "fetches files,", "or packages if", "they cost less"),
        ("4 Verify", "compares length", "and hash with", "the list"),
        ("5 Place", "renames the file", "into the copy,", "or deletes one"),
        ("6 Save", "saves how far", "it has come,", "last of all"),
    )
    for n, (head, *lines) in enumerate(steps):
        x = 24 + 121 * n
        picture.box(x, 78, 107, 96, "source" if n < 3 else "copy", head, *lines)
        if n < 5:
            picture.arrow((x + 107, 126), (x + 119, 126))
    picture.arrow((438, 174), (438, 206), (319, 206), (319, 176), kind="dashed")
    picture.text(378, 224, "content differs: fetch again", "small middle")
    picture.text(378, 240, "later, keep the old file", "small middle")
    picture.text(24, 60, "from the source", "small")
    picture.text(387, 60, "in the copy", "small")
    picture.text(
        24,
        276,
        "You can kill a run at any step. The next run continues; no half-written file gets a name in the copy.",
        "small",
    )
    return picture


def notification() -> Picture:
    picture = Picture(
        760,
        430,
        "The way of a notification",
        "The destination subscribes at the hub. The source publishes a change and sends a notification to the hub. The"
        " hub delivers it, signed. The destination fetches the resource from the source and verifies it.",
    )
    picture.text(24, 34, "From a change to the copy, by push", "title")
    lanes = (("Source", "source", 130), ("Hub", "hub", 380), ("Destination", "copy", 630))
    for name, kind, x in lanes:
        picture.line(x, 92, x, 396, "grid")
        picture.box(x - 75, 56, 150, 36, kind, name)
    steps = (
        (124, 630, 380, "1  subscribes, with a secret", ""),
        (158, 380, 630, "2  asks back: is it you?", ""),
        (236, 130, 380, "4  sends a notification", ""),
        (270, 380, 630, "5  delivers it, signed with the secret", ""),
        (304, 630, 130, "6  asks for the resource", ""),
        (338, 130, 630, "7  the content, which the destination verifies", ""),
        (376, 630, 130, "8  now and then: asks for the Change List, in case a message was lost", "dashed"),
    )
    for y, start, end, text, kind in steps:
        picture.arrow((start, y), (end, y), kind=kind)
        picture.text((start + end) / 2, y - 6, text, "label middle")
    picture.rect(40, 184, 180, 28, "source")
    picture.text(130, 202, "3  lists a change", "label middle")
    picture.text(24, 418, "Steps 3 to 7 take less than a second.", "small")
    return picture


def code_rooms() -> Picture:
    picture = Picture(
        760,
        452,
        "The folders of the code",
        "Commands on top; below them source, destination and hub, which know each other by HTTP alone; below these,"
        " shared folders. Imports point down only.",
    )
    picture.text(24, 34, "The folders of src/headwater: imports point down only", "title")
    picture.box(24, 54, 458, 44, "plain", "cli", "one module for each command")
    picture.box(494, 54, 122, 44, "plain", "simulate", "a made-up source")
    picture.box(628, 54, 108, 44, "plain", "library", "for programs")
    picture.rect(24, 116, 300, 216, "source")
    picture.text(174, 136, "SOURCE", "head middle")
    picture.box(40, 146, 268, 38, "plain", "http", "serves documents, files, packages")
    picture.box(40, 190, 268, 38, "plain", "source", "decides what runs when")
    picture.box(40, 234, 130, 40, "plain", "ingest", "finds changes")
    picture.box(178, 234, 130, 40, "plain", "publish", "writes documents")
    picture.box(40, 280, 84, 44, "plain", "catalog", "the truth")
    picture.box(132, 280, 84, 44, "plain", "versions", "old content")
    picture.box(224, 280, 84, 44, "plain", "datasets", "RDF")
    picture.rect(362, 116, 230, 216, "copy")
    picture.text(477, 136, "DESTINATION", "head middle")
    picture.box(378, 146, 198, 60, "plain", "sync", "discover, plan, transfer,", "verify, place, save")
    picture.box(378, 214, 94, 50, "plain", "sync/copy", "names, files")
    picture.box(482, 214, 94, 50, "plain", "sync/audit", "compares")
    picture.box(378, 272, 198, 50, "plain", "copy_state.py", "the state of a copy")
    picture.arrow((360, 166), (326, 166))
    picture.text(343, 156, "HTTP", "small middle")
    picture.rect(612, 116, 124, 216, "hub")
    picture.text(674, 136, "HUB", "head middle")
    picture.box(626, 146, 96, 176, "plain", "notify", "topics,", "subscriptions,", "deliveries,", "subscriber")
    picture.rect(24, 350, 712, 84, "plain")
    shared = (
        ("storage", "SQLite, clusters"),
        ("files", "local files"),
        ("packages", "ZIP"),
        ("patches", "JSON, N-Quads"),
        ("rdf", "canonical RDF"),
        ("triplestores", "SPARQL"),
        ("transport", "HTTP client"),
    )
    for n, (name, line) in enumerate(shared):
        x = 76 + 101.5 * n
        picture.text(x, 372, name, "head middle")
        picture.text(x, 388, line, "small middle")
    picture.line(36, 398, 724, 398, "grid")
    picture.text(380, 419, "spec: the standard, as functions without files, sockets or clocks", "label middle")
    return picture


def web_server() -> Picture:
    picture = Picture(
        760,
        290,
        "Publishing behind a web server",
        "headwater publish reads your export and writes an output folder. Your web server serves that folder to"
        " harvesters, except its subfolder .headwater, which holds the state.",
    )
    picture.text(24, 34, "Static files behind your web server", "title")
    picture.box(24, 86, 130, 92, "plain", "Your export", "files of your", "repository", "$/srv/export")
    picture.box(204, 86, 150, 92, "source", "Headwater", "from cron", "or by a timer", "$headwater publish")
    picture.box(404, 66, 150, 62, "copy", "Output folder", "lists and files", "$/srv/out")
    picture.box(404, 136, 150, 58, "warn", ".headwater", "state: never serve it")
    picture.box(590, 66, 146, 62, "plain", "Web server", "nginx, Apache, Caddy")
    picture.box(590, 206, 146, 62, "hub", "Harvesters", "any ResourceSync", "client")
    picture.arrow((154, 132), (202, 132))
    picture.text(178, 124, "reads", "small middle")
    picture.arrow((354, 98), (402, 98))
    picture.text(378, 90, "writes", "small middle")
    picture.arrow((354, 164), (402, 164))
    picture.arrow((554, 98), (588, 98))
    picture.arrow((670, 128), (670, 204))
    picture.text(662, 170, "HTTPS", "small end")
    picture.text(
        24, 226, "Files in the output are hard links where that is possible: they take no extra space.", "small"
    )
    picture.text(24, 246, "A file that you remove from the export stays public until the next run.", "small")
    return picture


def withdrawal() -> Picture:
    picture = Picture(
        760,
        402,
        "What stays public after you withdraw a file",
        "A timeline. The file and its lists are public until the next run. Dumps of a deleted file stay until they are"
        " made again. Its name in Change Lists, and old content in Change Dumps, patches and archives, stay until they"
        " are removed. Copies elsewhere follow by themselves.",
    )
    picture.text(24, 34, "You withdraw a file: what is public, until when?", "title")
    at = {"removed": 300, "run": 400, "dump": 530, "kept": 650, "end": 736}
    heads = (
        ("removed", "you remove or", "exclude it"),
        ("run", "next run", "(serve: ≈ 2 s)"),
        ("dump", "lists 1 hour,", "dumps 1 day later"),
        ("kept", "retention ends,", "or you --forget"),
    )
    for key, first, second in heads:
        picture.line(at[key], 88, at[key], 336, "grid")
        picture.text(at[key], 64, first, "small middle")
        picture.text(at[key], 79, second, "small middle")
    rows = (
        ("The file at its address", "run", ""),
        ("Resource List, Sitemap", "run", "dump"),
        ("Resource Dump", "run", "dump"),
        ("Its name in Change Lists", "kept", ""),
        ("Old content in Change Dumps,", "kept", ""),
        ("Copies elsewhere", "end", ""),
    )
    for n, (name, until, perhaps) in enumerate(rows):
        y = 100 + 40 * n
        picture.text(24, y + 17, name, "label")
        if n == 4:
            picture.text(24, y + 31, "patches, archives", "label")
        picture.rect(236, y + 4, at[until] - 236, 18, "public", radius=3)
        if perhaps:
            picture.rect(at[until] + 1, y + 4, at[perhaps] - at[until] - 2, 18, "maybe", radius=3)
    picture.text(568, 100 + 40 * 5 + 17, "until each copy follows", "small middle on")
    picture.rect(24, 352, 22, 12, "public", radius=2)
    picture.text(52, 362, "public", "small")
    picture.rect(110, 352, 22, 12, "maybe", radius=2)
    picture.text(138, 362, "public if you delete the file; not if you exclude it", "small")
    picture.text(
        24, 384, "A withdrawal of many files can be held back. They stay public then: the report says so.", "small"
    )
    return picture


DRAWINGS = {
    "roles": roles,
    "set": resource_set,
    "sync-run": sync_run,
    "notification": notification,
    "code-rooms": code_rooms,
    "web-server": web_server,
    "withdrawal": withdrawal,
}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (PICTURES / f"{name}.svg").write_text(draw().svg(), "utf-8")


if __name__ == "__main__":
    main()
