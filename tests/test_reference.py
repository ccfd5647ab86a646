"""The pages of the reference that are written from the program say what the program says."""

import pytest
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_program_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), f"docs/reference/{name} is out of date: make docs"
