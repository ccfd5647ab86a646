"""Builds the documents as a site: `make site` (`python -m tools.site [--draft]`) writes build/site.

MkDocs takes one folder of pages. Here it is put together: docs/ as it is, pages that lie elsewhere in the repository
(rules, results, tests, changes), and other files to which pages link. Links are rewritten for it, and headings get the
anchors that code hosts give them. MkDocs then checks each link and each anchor; a warning fails the build. `--draft`
fills gaps of the menu, and only prints warnings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES, SITE = ROOT / "build" / "site-pages", ROOT / "build" / "site"
ELSEWHERE = {
    "tests/README.md": "contribute/tests.md",
    "tests/rules.md": "contribute/rules.md",
    "bench/results.md": "contribute/results.md",
    "tests/engines.md": "contribute/engines.md",
    "packaging/release.md": "contribute/release.md",
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changes.md",
    "SECURITY.md": "contribute/reporting.md",
    "README.md": "index.md",
}
"""Pages outside of docs/, and where the site has them; the home page stands for the README."""

STYLE = """\
.md-typeset img { display: block; margin: 1em auto; max-width: 100%; height: auto; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) td, .md-typeset table:not([class]) th { min-width: 3rem; padding: .5em .7em; }
.md-typeset table code { word-break: normal; overflow-wrap: anywhere; }
.md-typeset h1 { font-weight: 500; color: inherit; }
.md-typeset h2 { font-weight: 400; }
.md-typeset pre > code { font-size: .78em; }
.md-typeset h3[id^="hw-"] ~ .highlight code { padding-right: 3em; white-space: pre-wrap; overflow-wrap: anywhere; }
"""
FRAME_WORKER = """\
// Pages that are opened from a folder may not start workers: a frame that nobody sees does the work of the search.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = (this.inside = this.frame.contentWindow);
      const load = (one) => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.onload = done;
        script.onerror = failed;
        script.src = one;
        inside.document.body.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((done, one) => done.then(() => load(one)), Promise.resolve());
      this.loaded = load(url);
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
"""
FETCHED = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"' >]+\.(?:js|css|woff2?)|@import|//unpkg|//fonts\.g""")


def main() -> int:
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        print("mkdocs is not installed: python3 tools/environment.py docs", file=sys.stderr)
        return 1
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    put_together()
    if draft := "--draft" in sys.argv[1:]:
        fill_gaps()
    command = [sys.executable, "-m", "mkdocs", "build"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(
        [*command, *(["--no-strict"] if draft else [])],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.strip() and not line.startswith("INFO")]
    print("\n".join(said), file=sys.stderr)
    if done.returncode == 0 and not draft and (found := fetched_by_a_browser()):
        print("a browser would fetch from elsewhere:", *found, sep="\n  ", file=sys.stderr)
        return 1
    if done.returncode == 0:
        print(f"built {SITE.relative_to(ROOT)}/index.html")
    return done.returncode


def put_together() -> None:
    """Write all pages and the files that they name below `PAGES`."""
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.md"))
    for page in sorted(DOCS.rglob("*.md")):
        write(page, page.relative_to(DOCS).as_posix())
    for name, place in ELSEWHERE.items():
        if not (PAGES / place).exists() and (ROOT / name).exists():
            write(ROOT / name, place)
    (PAGES / "site.css").write_text(STYLE, "utf-8")
    (PAGES / "iframe-worker.js").write_text(FRAME_WORKER, "utf-8")


def write(page: Path, place: str) -> None:
    """Write one page to its place, its links and headings as the site has them."""
    lines, fenced, seen = [], False, Counter[str]()
    for line in page.read_text("utf-8").split("\n"):
        if re.match(r" *```", line):
            fenced = not fenced
        elif not fenced:
            line = re.sub(r"(\]\(<?)([^)\s>]+)", lambda found: found[1] + link(found[2], page, place), line)
            line = re.sub(r'((?:src|href)=")([^"]+)', lambda found: found[1] + link(found[2], page, place), line)
            line = with_anchor(line, seen)
        lines.append(line)
    (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / place).write_text("\n".join(indented(lines)), "utf-8")


def indented(lines: list[str]) -> list[str]:
    """The lines with what belongs to an item of a list four columns in: before fewer, MkDocs ends the list."""
    found, width = list[str](), 0
    for line in lines:
        item = re.match(r"(?:\d+\.|[-*]) +", line)
        if item:
            width = len(item[0])
        elif line and not line.startswith(" " * width):
            width = 0
        found.append(" " * (4 - width) + line if width and line and not item else line)
    return found


def link(target: str, page: Path, place: str) -> str:
    """A link of a page as it is in the site; a file outside of docs/ is copied into it."""
    name, mark, part = target.partition("#")
    if not name or re.match(r"[a-z]+:", target):
        return target
    file = (page.parent / name).resolve()
    if file.is_relative_to(DOCS):
        there = file.relative_to(DOCS).as_posix()
    elif not file.is_relative_to(ROOT) or not file.is_file():
        return target  # MkDocs says that it leads nowhere
    elif (inside := file.relative_to(ROOT).as_posix()) in ELSEWHERE:
        there = ELSEWHERE[inside]
    else:
        there = f"files/{inside}.txt"
        (PAGES / there).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, PAGES / there)
    return os.path.relpath(there, os.path.dirname(place) or ".") + mark + part


def with_anchor(line: str, seen: Counter[str]) -> str:
    """A heading with the anchor that code hosts give it, to which pages link."""
    heading = re.match(r"#+ (.*)$", line)
    if heading is None or "{ #" in line or "{#" in line:
        return line
    return f"{line} {{ #{anchor(heading[1], seen)} }}"


def anchor(heading: str, seen: Counter[str]) -> str:
    """The anchor of a heading, among those of its page."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
    seen[slug] += 1
    return slug if seen[slug] == 1 else f"{slug}-{seen[slug] - 1}"


def fill_gaps() -> None:
    """Write a page for each one of the menu that has not been written."""
    for name in re.findall(r"^ +- (?:\w+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE):
        if not (PAGES / name).exists():
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / name).write_text(f"# {Path(name).stem}\n\nNot written yet.\n", "utf-8")


def fetched_by_a_browser() -> list[str]:
    """What pages of the site would fetch from other hosts."""
    found = []
    for page in SITE.rglob("*.html"):
        found += [f"{page.relative_to(SITE)}: {match[0]}" for match in FETCHED.finditer(page.read_text("utf-8"))]
    return found[:20]


if __name__ == "__main__":
    sys.exit(main())
