"""A simulated source of many sets: published side by side, and no set is forgotten because another one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Interrupted
from headwater.progress import Listener, Notice, Progress, silent
from headwater.publish.site import SetSettings, Site
from headwater.simulate.resources import ChangeSettings, SourceSettings
from headwater.simulate.simulation import OtherSimulation, Simulation
from headwater.simulate.source import PUBLISHED, SimulatedSource
from headwater.source.health import report
from tests.support.waiting import DEADLINE, until

NAMES = tuple(f"s{number:02d}" for number in range(30))


@contextmanager
def simulated(folder: Path, heard: list[Notice | Progress], rate: float = 200.0) -> Iterator[SimulatedSource]:
    catalog = SqliteCatalog(folder / "catalog.sqlite")
    world = SourceSettings(resources=90, sets=NAMES)
    simulation = Simulation(catalog, world, ChangeSettings(rate=rate), heard.append)
    simulation.prepare()
    site = Site(base_url="http://source.example", sets=tuple(SetSettings(name=name) for name in NAMES))
    source = SimulatedSource(simulation, site, folder / "documents", heard.append, durable=False)
    yield source
    assert source.stop()
    catalog.close()


def shown(source: SimulatedSource, name: str) -> int:
    held = source.store.open(f"{name}/changelist.xml")
    assert held is not None
    with held:
        return held.read(0, held.octets).count(b"<url>")


def test_all_sets_are_published_and_progress_is_told_of_all_together(tmp_path: Path) -> None:
    heard: list[Notice | Progress] = []
    with simulated(tmp_path, heard, rate=0.0) as source:
        source.publish()
        assert source.is_site_published()
        assert all(source.is_published(name) for name in NAMES)
    phases = {one.phase: one for one in heard if isinstance(one, Progress)}
    assert phases == {"resources": Progress("resources", 90, 90), PUBLISHED: Progress(PUBLISHED, 30, 30)}


def test_publishing_ends_when_it_is_told(tmp_path: Path) -> None:
    heard: list[Notice | Progress] = []
    with simulated(tmp_path, heard, rate=0.0) as source:
        source.stop()
        with pytest.raises(Interrupted):
            source.publish()
        assert not source.is_site_published()


def test_a_set_that_fails_is_told_and_loses_no_change_of_any_set(tmp_path: Path) -> None:
    heard: list[Notice | Progress] = []
    with simulated(tmp_path, heard) as source:
        ready = threading.Event()
        source.load_and_start(ready.set, ready.set)
        assert ready.wait(DEADLINE)
        folder = tmp_path / "documents" / NAMES[3] / "changelist"
        folder.rename(folder.with_name("aside"))
        folder.write_text("a file where a folder belongs")
        until(lambda: any(isinstance(one, Notice) for one in heard), what="the fault")
        until(lambda: all(shown(source, name) for name in NAMES if name != NAMES[3]), what="the others")
        folder.unlink()
        until(lambda: all(shown(source, name) for name in NAMES), what="the changes of all sets")
        until(lambda: source.health()["simulation"]["error"] is None, what="its health")  # type: ignore[index]


def another(folder: Path, seed: int, hear: Listener = silent) -> tuple[SqliteCatalog, SimulatedSource]:
    """A simulation of one set in a state folder that may have one already, neither loaded nor started."""
    catalog = SqliteCatalog(folder / "catalog.sqlite")
    simulation = Simulation(
        catalog, SourceSettings(resources=90, sets=("files",), seed=seed), ChangeSettings(rate=0.0), hear
    )
    site = Site(base_url="http://source.example", sets=(SetSettings(name="files"),))
    return catalog, SimulatedSource(simulation, site, folder / "documents", durable=False)


def test_nothing_is_shown_until_everything_is_loaded_and_published(tmp_path: Path) -> None:
    loading, go_on, said = threading.Event(), threading.Event(), list[str]()

    def hold(_event: Notice | Progress) -> None:
        loading.set()
        assert go_on.wait(DEADLINE)

    catalog, source = another(tmp_path, 1, hold)
    source.load_and_start(lambda: said.append("ready"), lambda: said.append("failed"))
    assert loading.wait(DEADLINE)
    assert report(source)[0] == 503
    assert not source.is_published("files")
    assert not source.is_known_published("files")
    assert not source.is_site_published()
    go_on.set()
    until(lambda: said == ["ready"], what="the publication")
    assert report(source)[0] == 200
    assert source.stop()
    catalog.close()


def test_documents_of_another_simulation_are_never_shown(tmp_path: Path) -> None:
    for seed in (1, 2):
        catalog, source = another(tmp_path, seed)
        assert not source.is_published("files")
        ended = threading.Event()
        source.load_and_start(ended.set, ended.set)
        assert ended.wait(DEADLINE)
        assert source.is_published("files") == (seed == 1)
        assert isinstance(source.fault, OtherSimulation) == (seed == 2)
        assert source.stop()
        catalog.close()
