"""The documentation is run: command lines, examples of the library, and the pages that are written from the program."""

import re
from pathlib import Path

from tools.reference import PAGE, error_kinds, render

ROOT = Path(__file__).resolve().parent.parent


def test_the_reference_is_what_the_program_says() -> None:
    assert PAGE.read_text("utf-8") == render(), "docs/reference.md is out of date: make docs"


def test_error_codes_are_unique_and_well_formed() -> None:
    codes: dict[str, list[str]] = {}
    for kind in error_kinds():
        codes.setdefault(kind.code, []).append(kind.__name__)
        assert re.fullmatch(r"HW-([A-Z]+-\d\d|000)", kind.code), kind
    assert {code: names for code, names in codes.items() if len(names) > 1} == {}


def test_the_map_names_every_room_and_nothing_that_is_not_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    source = ROOT / "src" / "headwater"
    for name in re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text):
        assert (source / name).exists(), name
    rooms = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(re.findall(r"[a-z]+", text))


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
