"""Writes the pages of docs/reference that come from the program itself: each is made by a module of its own.

`make docs` writes them; a test fails when a page and the program differ.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools import aggregation_page, commands_page, configuration_page, messages_page

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "aggregate.md": aggregation_page.render,
    "commands.md": commands_page.render,
    "configuration.md": configuration_page.render,
    "messages.md": messages_page.render,
}


def main() -> None:
    for name, render in PAGES.items():
        (FOLDER / name).write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
