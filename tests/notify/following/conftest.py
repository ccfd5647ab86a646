"""A source with a hub, and a copy that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notify.following.pushing import Following, Hub, PushedSite, following, pushed_site
from tests.support.fake_source import Source


@pytest.fixture
def source() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture
def hub(source: Source) -> Hub:
    return Hub(source)


@pytest.fixture
def site(source: Source, hub: Hub) -> PushedSite:
    return pushed_site(source, hub.url)


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "copy"


@pytest.fixture
def copy(site: PushedSite, dest: Path) -> Iterator[Following]:
    """The copy, with push at work and everything caught up with."""
    with following((site.source.base, dest)) as one:
        one.at_rest()
        site.source.forget()
        one.reports.clear()
        yield one
