"""The bags that `headwater export` writes, read by the `bagit` package of the Library of Congress."""

from __future__ import annotations

from pathlib import Path

import bagit
import pytest

from tests.support.copying import DONE, go
from tests.support.fake_source import Site, Source
from tests.support.program import run_here


def test_the_bagit_package_takes_the_bag(tmp_path: Path) -> None:
    """Release 1.9 does not read `%25`, as names with `%` are written by RFC 8493."""
    dest = tmp_path / "copy"
    with Source() as source:
        site = Site(source)
        for name in ("plain.txt", "two words", "deep/er/file", "%C3%A9", "line%0Aend"):
            site.put(name.replace(" ", "%20"), name.encode())
        site.publish()
        go(source.base, dest)
    assert run_here("export", dest, "-o", tmp_path / "bag", "--format", "bagit").returncode == DONE
    bag = bagit.Bag(str(tmp_path / "bag"))
    bag.validate()
    assert bag.info["Bag-Software-Agent"].startswith("headwater ")
    (tmp_path / "bag" / "data" / "plain.txt").write_bytes(b"another!!")
    with pytest.raises(bagit.BagValidationError):
        bag.validate()
