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

from tests.support.pages import DOCS, ROOT, blocks, carry_out_page

pytestmark = pytest.mark.long(60)

FOLDERS = ("tutorial", "how-to", "reference", "explanation", "contribute")
BESIDE = ("index.md", "architecture.md", "dependencies.md")

PLANNED = set(
    re.findall(
        r"\S+",
        """
        index.md tutorial/first-copy.md
        how-to/publish-behind-a-web-server.md how-to/keep-files-private.md
        how-to/check-that-harvesters-can-read-you.md how-to/serve-old-harvesters-and-search-engines.md
        how-to/link-resources.md how-to/offer-dumps-versions-and-archives.md
        how-to/run-and-monitor-a-source.md how-to/back-up-restore-and-move.md how-to/upgrade.md
        how-to/publish-records-from-a-program.md how-to/push-changes-through-a-hub.md how-to/republish-a-copy.md
        how-to/use-several-processes-or-a-cluster.md
        how-to/copy-a-source.md how-to/follow-many-sources.md how-to/handle-deletions-and-failures.md
        how-to/prove-a-copy.md how-to/feed-an-index.md how-to/copy-the-past.md how-to/something-went-wrong.md
        how-to/publish-an-rdf-dataset.md how-to/keep-a-triplestore-current.md
        reference/commands.md reference/messages.md reference/configuration.md reference/library.md
        reference/outputs.md reference/addresses-and-additions.md reference/glossary.md
        reference/simulated-sources.md
        explanation/how-headwater-works.md explanation/how-a-set-becomes-lists.md
        explanation/how-a-copy-stays-true.md explanation/what-an-audit-proves.md explanation/how-push-works.md
        explanation/how-rdf-datasets-are-exchanged.md explanation/security.md explanation/scale-and-limits.md
        contribute/your-first-hour.md contribute/style.md contribute/release.md contribute/engines.md
        """,
    )
)
"""Pages that are being written: a link to one that is not there yet is none that leads nowhere."""

PICTURES_TO_COME = True


def new_pages() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((DOCS / folder).rglob("*.md"))]
    return [*found, *(path for name in BESIDE if (path := DOCS / name).exists())]


PAGES = new_pages()
LIBRARY = DOCS / "reference" / "library.md"  # its examples are carried out by tests/test_library.py


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


def is_to_come(target: Path) -> bool:
    name = target.relative_to(DOCS).as_posix() if target.is_relative_to(DOCS) else ""
    return name in PLANNED or (PICTURES_TO_COME and name.startswith("pictures/"))


@pytest.mark.parametrize(
    "page", [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md"))], ids=lambda page: page.stem
)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            broken += [] if is_to_come(target) else [link]
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken += [] if is_to_come(target) and is_to_come(page) else [link]
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
    there = {path.relative_to(DOCS).as_posix() for path in PAGES} | elsewhere | {"decisions/README.md"}
    assert there <= set(menu), "pages that are not in mkdocs.yml"
    assert set(menu) - there <= PLANNED, "pages of mkdocs.yml that are not there"


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
