"""The pages of the reference that are written from the program say what the program says."""

import msgspec
import pytest
from tools.configuration_page import NOT_TOLD, STRUCTS, groups
from tools.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_what_the_program_says(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == PAGES[name](), f"docs/reference/{name} is out of date: make docs"


@pytest.mark.parametrize("name", STRUCTS)
def test_each_key_is_told_once_and_none_that_is_not_there(name: str) -> None:
    told = [key.name for group in groups() if group.struct == name for key in group.keys]
    fields = {one.encode_name for one in msgspec.structs.fields(STRUCTS[name])} - NOT_TOLD.get(name, set())
    assert sorted(told) == sorted(fields)


def test_a_default_is_told_only_where_the_struct_has_none() -> None:
    for group in groups():
        fields = {one.encode_name: one for one in msgspec.structs.fields(STRUCTS[group.struct])}
        for key in group.keys:
            if key.default is not None:
                assert fields[key.name].default in (None, "", (), msgspec.NODEFAULT), key.name
