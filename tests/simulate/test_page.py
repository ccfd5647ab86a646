"""docs/simulate.md is run: every command line on it, from top to bottom, and its tables against the program."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from headwater.cli.simulate import command
from headwater.simulate.resources import PRESETS
from tests.test_manual import blocks, check_console, scratch

pytestmark = pytest.mark.long(10)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulate.md"


def test_the_page_is_carried_out(tmp_path: Path) -> None:
    with scratch(tmp_path) as place:
        for line, language, block in blocks(PAGE):
            print(f"docs/simulate.md, line {line}")  # shown when the block fails
            if language == "console":
                check_console(block, place)


def test_the_page_names_every_preset_with_its_numbers() -> None:
    text = PAGE.read_text("utf-8")
    for name, preset in PRESETS.items():
        assert f"| `{name}` | {preset['resources']:,} | {preset.get('set_count', 1):,} |" in text


def test_the_page_and_the_command_know_the_same() -> None:
    text = PAGE.read_text("utf-8")
    options = {name for one in command.params if isinstance(one, click.Option) for name in one.opts}
    assert set(re.findall(r"`(--[a-z-]+)[ `]", text)) <= options
    choice = next(one.type for one in command.params if one.name == "preset")
    assert isinstance(choice, click.Choice)
    assert set(choice.choices) == set(PRESETS)
