"""The tables of docs/reference/simulated-sources.md are what the program says."""

from __future__ import annotations

import re
from pathlib import Path

import click

from headwater.cli.simulate import command
from headwater.simulate.resources import PRESETS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "simulated-sources.md"


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
