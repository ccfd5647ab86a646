"""A fake source with dumps of its own site, whose lists a test may leave out."""

from __future__ import annotations

import pytest

from tests.support.fake_dumps import Dumps
from tests.support.fake_source import Site, Source


@pytest.fixture
def dumps(source: Source) -> Dumps:
    """Six small files in two folders."""
    site = Site(source)
    for number in range(6):
        site.put(f"d{number % 2}/f{number}.txt", b"body %d\n" % number)
    site.clock = 100.0
    site.publish(since=100.0)
    return Dumps(site)
