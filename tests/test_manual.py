"""The documentation against the program: pages that are written from it, codes, the map, commands of the README."""

import re
from pathlib import Path

from headwater.errors import message, messages
from headwater.spec.records import HASHLIB
from tests.support.pages import blocks

ROOT = Path(__file__).resolve().parent.parent


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
    from headwater.cli import COMMANDS

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
