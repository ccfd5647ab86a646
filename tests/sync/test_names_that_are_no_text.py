"""Names of files that are no UTF-8, beside files that are held."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from tests.support.copying import DONE, go, tree
from tests.support.fake_source import Site, Source


@pytest.mark.parametrize("name", ["%C3/%A9", "a%C3/%A9/%BC", "%FF/%FE/x", "%E2/%82%AC"])
def test_a_folder_and_its_file_that_together_would_be_a_letter(
    source: Source, site: Site, dest: Path, name: str
) -> None:
    """No run ends over it: whoever looks for what is in the way sees octets, whose folders end with any of them."""
    go(source.base, dest)
    site.put(name, b"new")
    site.publish_changes(10.0)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created) == (DONE, 1)
    assert Path(dest, unquote_to_bytes(name).decode("utf-8", "surrogateescape")).read_bytes() == b"new"


def test_a_folder_where_a_file_is_held_has_another_name(source: Source, site: Site, dest: Path) -> None:
    site.put("%C3", b"held")
    site.publish()
    go(source.base, dest)
    site.put("%C3/%A9/x", b"new")
    site.publish_changes(10.0)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.held) == (DONE, 1, 7)
    assert sorted(tree(dest).values())[-2:] == [b"held", b"new"]
