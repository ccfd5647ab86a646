"""Builds the documents as a site: `make site` (`python -m tools.site [--draft]`) writes build/site.

MkDocs takes one folder of pages. Here it is put together: docs/ as it is, pages that lie elsewhere in the repository
(rules, results, tests, changes), and other files to which pages link. Links are rewritten for it, and headings get the
anchors that code hosts give them. MkDocs then checks each link and each anchor; a warning fails the build. `--draft`
leaves out of the menu what has not been written.
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
    "CONTRIBUTING.md": "contribute/contributing.md",
    "CHANGELOG.md": "contribute/changes.md",
    "SECURITY.md": "contribute/reporting.md",
    "README.md": "index.md",
}
"""Pages outside of docs/, and where the site has them; the home page stands for the README."""

STYLE = """\
.md-typeset img { display: block; margin: 1em auto; max-width: 100%; height: auto; }
.md-typeset table:not([class]) { font-size: .68rem; }
.md-typeset table:not([class]) td, .md-typeset table:not([class]) th { min-width: 4rem; }
.md-typeset pre > code { font-size: .78em; }
"""
FETCHED = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"' >]+\.(?:js|css|woff2?)|@import|//unpkg|//fonts\.g""")


def main() -> int:
    if shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None:
        print("mkdocs is not installed: python3 tools/environment.py docs", file=sys.stderr)
        return 1
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    put_together()
    config = ROOT / "mkdocs.yml"
    if draft := "--draft" in sys.argv[1:]:
        config = without_what_is_not_written(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(config)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run([*command, *(["--no-strict"] if draft else [])], cwd=ROOT, env=environment, check=False)
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
    (PAGES / place).write_text("\n".join(lines), "utf-8")


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


def without_what_is_not_written(config: Path) -> Path:
    """The settings without pages of the menu that are not there."""
    kept = [
        line
        for line in config.read_text("utf-8").split("\n")
        if (named := re.match(r" +- (?:\w+: )?(\S+\.md)$", line)) is None or (PAGES / named[1]).exists()
    ]
    draft = ROOT / "build" / "mkdocs-draft.yml"
    text = "\n".join(kept).replace("docs_dir: build/", "docs_dir: ").replace("site_dir: build/", "site_dir: ")
    draft.write_text(text, "utf-8")
    return draft


def fetched_by_a_browser() -> list[str]:
    """What pages of the site would fetch from other hosts."""
    found = []
    for page in SITE.rglob("*.html"):
        found += [f"{page.relative_to(SITE)}: {match[0]}" for match in FETCHED.finditer(page.read_text("utf-8"))]
    return found[:20]


if __name__ == "__main__":
    sys.exit(main())
