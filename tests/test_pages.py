"""The pages of the documentation: what they show is carried out, their links lead somewhere, and they are short."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench import charts
from tools import pictures, prose, site

from headwater.cli import COMMANDS
from headwater.errors import message, messages
from headwater.spec.records import HASHLIB
from tests.support.pages import DOCS, ROOT, blocks, carry_out_page

pytestmark = pytest.mark.long(150)

PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "decisions")
LIBRARY = DOCS / "reference" / "library.md"  # its examples are carried out by tests/test_library.py
BESIDE = [ROOT / name for name in site.ELSEWHERE]
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


def named(path: Path) -> str:
    return str(path.relative_to(DOCS).with_suffix(""))


@pytest.mark.parametrize("page", [page for page in PAGES if page != LIBRARY and blocks(page)], ids=named)
def test_a_page_is_carried_out_from_top_to_bottom(tmp_path: Path, page: Path) -> None:
    carry_out_page(page, tmp_path)


# -- links


@cache
def anchors(page: Path) -> set[str]:
    """Those that a heading has, as the site and code hosts make them."""
    seen = Counter[str]()
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = {site.anchor(heading, seen) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text)) | set(re.findall(r"\{ ?#([\w-]+) ?\}", text))


def links_of(page: Path) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    return [*re.findall(r"\]\(<?([^)\s>]+)", text), *re.findall(r'(?:src|href|srcset)="([^"]+)"', text)]


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted(set(BESIDE)), *DECISIONS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# -- words

MOST_WORDS = 45_000
MOST_WORDS_OF_A_PAGE = 1_500
LONG_SENTENCES = 0.03
"""The share of a page's sentences that may have more than 25 words; one may always be so long."""
GENERATED = {"commands.md", "messages.md", "configuration.md", "library.md"}


def test_the_pages_have_no_more_words_than_a_reader_has_time_for() -> None:
    words = sum(prose.Page(path).words for path in PAGES)
    assert words <= MOST_WORDS, f"{words:,} words"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_is_in_plain_english(page: Path) -> None:
    found = prose.Page(page)
    if page.name not in GENERATED:
        assert found.words <= MOST_WORDS_OF_A_PAGE, f"{found.words:,} words"
    long = found.long_sentences()
    assert len(long) <= max(1, LONG_SENTENCES * len(found.sentences)), "\n".join(f"line {n}: {s}" for n, s in long)
    assert found.forbidden() == []


# -- the site


def test_the_menu_of_the_site_has_each_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    menu = re.findall(r"^ +- (?:\w+: )?(\S+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    assert len(menu) == len(set(menu))
    elsewhere = set(site.ELSEWHERE.values()) - {"index.md"}
    assert set(menu) == {path.relative_to(DOCS).as_posix() for path in PAGES} | elsewhere | {"decisions/README.md"}


# -- pictures

DRAWN = {f"{name}.svg": draw().svg() for name, draw in pictures.DRAWINGS.items()}


@pytest.mark.parametrize("name", sorted({path.name for path in pictures.PICTURES.iterdir()} | DRAWN.keys()))
def test_a_picture_is_small_and_says_what_it_shows(name: str) -> None:
    path = pictures.PICTURES / name
    assert path.stat().st_size <= (20_000 if path.suffix == ".svg" else 150_000)
    if path.suffix == ".svg":
        text = path.read_text("utf-8")
        root = ElementTree.fromstring(text)
        assert root.findtext("{*}title")
        assert "prefers-color-scheme" in text or 'class="ground"' in text
        drawn = {**DRAWN, **charts.drawn(charts.PAGE.read_text("utf-8"))}
        assert drawn.get(name, text) == text, "make docs (a drawing), python -m bench.charts (a chart)"


def test_the_short_table_of_results_is_from_the_long_one() -> None:
    text = charts.PAGE.read_text("utf-8")
    assert charts.page_with_short_table(text) == text, "python -m bench.charts"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_picture_on_a_page_has_a_text_that_stands_for_it(page: Path) -> None:
    assert re.findall(r"!\[\s*\]\([^)]*\)|<img(?![^>]*\balt=\"[^\"])[^>]*>", page.read_text("utf-8")) == []


# -- what pages say of the program


def test_every_code_in_the_source_is_in_the_table_and_none_is_there_for_nothing() -> None:
    used: set[str] = set()
    for path in (ROOT / "src" / "headwater").rglob("*.py"):
        used |= set(re.findall(r"\b(?:HW-(?:[A-Z]+-)?\d+|RS-DOC-19|RS-DISC-05)\b", path.read_text("utf-8")))
    assert used == set(messages())


def test_the_advice_on_digests_names_those_that_there_are() -> None:
    assert message("HW-OWN-04").advice == f"Use one of {', '.join(HASHLIB)}."


def test_the_map_names_every_room_and_nothing_that_is_not_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    source = ROOT / "src" / "headwater"
    for name in re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text):
        assert (source / name).exists() or (ROOT / name).exists(), name
    rooms = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(re.findall(r"[a-z]+", text))


def test_the_readme_names_commands_that_exist() -> None:
    text = "\n".join(block.text for block in blocks(ROOT / "README.md"))
    assert set(re.findall(r"^headwater (\w+)", text, re.MULTILINE)) <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= targets


def test_each_proxy_of_a_source_in_the_documentation_speaks_http_1_1() -> None:
    """nginx speaks 1.0 unless told otherwise, and a package on demand is then refused with 505."""
    places = [
        (page.name, place)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for place in re.findall(r"location /(?:sync/)? \{[^}]*\}", page.read_text("utf-8"))
        if ":8000" in place
    ]
    assert places
    assert [name for name, place in places if "proxy_http_version 1.1;" not in place] == []


def test_the_site_keeps_blocks_within_the_items_of_lists() -> None:
    """MkDocs ends a list before a block that is less than four columns in, and counts from 1 again."""
    given = [
        "1. Publish:",
        "",
        "   ```console",
        "   $ true",
        "   ```",
        "",
        "2. See:",
        "- one",
        "  more",
        "",
        "Text",
        "   code",
    ]
    made = [
        "1. Publish:",
        "",
        "    ```console",
        "    $ true",
        "    ```",
        "",
        "2. See:",
        "- one",
        "    more",
        "",
        "Text",
    ]
    assert site.indented(given) == [*made, "   code"]
