"""A copied dataset that is published again, patches and all: source, copy, and copy of the copy, killed in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.catalog.interface import Catalog
from headwater.datasets.rows import read_origin
from headwater.source.source import Source
from tests.source.datasets.dataset_source import Rounds, file_set, triples
from tests.source.datasets.importer import ImportedDataset, dataset_file, datasets, entries, import_changes
from tests.support.copying import DONE, check, go
from tests.support.failing import failing
from tests.support.fake_source import Site
from tests.support.fake_source import Source as FakeSource
from tests.support.waiting import until
from tests.sync.datasets.test_existing_exporter import STATES as MIXED
from tests.sync.datasets.test_existing_exporter import Dataset, text_of

STATES = [{one for one in state if b"_:" not in one} for state in MIXED]
KILLS = int(os.environ.get("HEADWATER_KILLS", "2"))


class Program:
    """A process of the program that can be killed and started again."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self._command = [sys.executable, "-m", "headwater", *map(str, arguments)]
        self._log = (folder / f"{arguments[0]}-{arguments[-1]}.log").open("ab")
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder / "states")}
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, env=self._environment)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def source() -> Iterator[FakeSource]:
    with FakeSource() as one:
        yield one


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def made(*arguments: object) -> Program:
        running.append(Program(tmp_path, *arguments))
        return running[-1]

    yield made
    for one in running:
        one.close()


def dataset_of(url: str) -> bytes:
    with suppress(OSError), urllib.request.urlopen(f"{url}/dataset/dataset.nq", timeout=30) as answer:
        return bytes(answer.read())
    return b""


def test_a_copy_of_a_copy_follows_the_source_by_patches(tmp_path: Path, program: Callable[..., Program]) -> None:
    """One command republishes a copied dataset. Equal and audited after each change, whoever was killed (TIM-08)."""
    data, first, second = tmp_path / "people.nt", tmp_path / "first", tmp_path / "second"
    data.write_text(triples(*range(200)))
    ports = free_port(), free_port()
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    program("serve", "--dataset", data, "--port", ports[0])
    until(lambda: dataset_of(urls[0]) != b"", what="the source")
    middle = [program("sync", urls[0], first, "--follow", "0.2")]
    until((first / "dataset.nq").exists, what="the copy")
    middle.append(program("serve", "--dataset", first, "--port", ports[1]))
    patched = 0
    for number in range(KILLS + 2):
        if number:
            aside = tmp_path / "people.new"
            aside.write_text(triples(*range(number, 200 + number)))
            aside.rename(data)
        if 0 < number <= KILLS:
            middle[number % 2].kill()
            middle[number % 2].start()
        wanted = "".join(sorted(triples(*range(number, 200 + number)).splitlines(keepends=True))).encode()
        until(lambda wanted=wanted: dataset_of(urls[1]) == wanted, what=f"state {number} in the middle")  # type: ignore[misc]
        patched += caught_up(urls[1], second, wanted)
        assert [(copy / "dataset.nq").read_bytes() for copy in (first, second)] == [wanted, wanted]
        assert check(urls[0], first).verdict == check(urls[1], second).verdict == "in sync"
        assert imported(urls[1]) == set(wanted.splitlines(keepends=True))
    assert patched >= KILLS  # downstream of each change only its patch was fetched


def imported(url: str) -> set[bytes]:
    """The statements as the existing importer has them by changes, which are those of the file (TIM-08)."""

    def fetch(wanted: str) -> bytes:
        with urllib.request.urlopen(wanted, timeout=30) as answer:
            return bytes(answer.read())

    into = ImportedDataset()
    (offered,) = datasets(fetch, url).values()
    import_changes(fetch, offered["changelist"], into)
    assert b"".join(sorted(into.lines)) == dataset_file(fetch, offered["resourcelist"])
    return into.lines


def caught_up(url: str, copy: Path, wanted: bytes) -> int:
    """Run until the copy has this state; how many patches brought it there."""
    patched = []

    def has_come() -> bool:
        ran = go(url, copy)
        patched.append(ran.one.patched if ran.report is not None else 0)
        return ran.status == DONE and (copy / "dataset.nq").read_bytes() == wanted

    until(has_come, what="the copy of the copy")
    return sum(patched)


class Chain:
    """A source that a test writes by hand, its copy, and a source over the copy, a round at a time."""

    def __init__(self, tmp_path: Path, upstream: FakeSource) -> None:
        self.copy = tmp_path / "copy"
        self.dataset = Dataset(upstream)
        self.rounds = Rounds(tmp_path, file_set(self.copy))

    def to(self, state: set[bytes]) -> None:
        self.dataset.to(state).publish()
        assert go(self.dataset.site.source.base, self.copy).status == DONE
        self.rounds.run()

    def listed(self, name: str = "resourcelist") -> list[dict[str, str]]:
        found = entries(self.rounds.document(f"d/{name}.xml"))
        return [one.link for one in found]


def test_via_leads_to_the_first_source_and_changes_have_their_patch_alone(tmp_path: Path, source: FakeSource) -> None:
    """DST-S9, TIM-A2; a `via` that the entry has is kept, also after changes, which do not state it."""
    chain = Chain(tmp_path, source)
    site: Site = chain.dataset.site
    for state in STATES[:3]:
        chain.to(state)
        assert [(one["rel"], one["href"]) for one in chain.listed()] == [("via", site.uri("dataset.nq"))]
        assert {one["rel"].rpartition("/")[2] for one in chain.listed("changelist")} == {"patch"}
        assert chain.rounds.imported().lines == set(text_of(state).splitlines(keepends=True))
    assert len(chain.listed("changelist")) == 3


def test_a_stated_origin_outlives_changes(tmp_path: Path, source: FakeSource) -> None:
    chain = Chain(tmp_path, source)
    dataset, site = chain.dataset.to(STATES[0]), chain.dataset.site
    dataset.publish()
    via = '<rs:ln rel="via" href="http://first.example/dataset.nq"/>'
    site.publish_list([site.resource("dataset.nq").replace("</url>", f"{via}</url>")])
    assert go(source.base, chain.copy).status == DONE
    chain.rounds.run()
    for state in (STATES[0], STATES[1]):
        if state is not STATES[0]:
            chain.to(state)
        assert [one["href"] for one in chain.listed()] == ["http://first.example/dataset.nq"]


def test_what_no_list_confirms_or_somebody_altered_is_not_published(tmp_path: Path, source: FakeSource) -> None:
    """What was published stays."""
    chain = Chain(tmp_path, source)
    chain.to(STATES[0])
    held = chain.copy / "dataset.nq"
    held.write_bytes(text_of(STATES[1]))
    with pytest.raises(Exception, match="not as it was placed"):
        chain.rounds.run()
    assert chain.rounds.imported().lines == STATES[0]
    assert go(source.base, chain.copy, repair=True).status == DONE
    chain.rounds.run()
    assert chain.rounds.imported().lines == STATES[0]


def test_other_rdf_files_of_a_copy_are_not_mixed_with_the_dataset(tmp_path: Path, source: FakeSource) -> None:
    """TIM-A14, TIM-A5: of a folder that is a copy only the dataset is published."""
    chain = Chain(tmp_path, source)
    chain.dataset.site.put("other.nq", b"<urn:other> <urn:p> <urn:o> .\n", change=False)
    dataset = chain.dataset.to(STATES[0]).publish()
    site = dataset.site
    site.publish_list([site.resource("dataset.nq"), site.resource("other.nq")])
    assert go(source.base, chain.copy).status == DONE
    chain.rounds.run()
    assert chain.rounds.imported().lines == STATES[0]
    with Source(chain.rounds.config) as again:
        catalog: Catalog = again.catalog
        origin = read_origin(catalog, "d")
    assert origin is not None
    assert origin.href == site.uri("dataset.nq")


def test_a_file_that_the_copy_does_not_hold_is_refused(tmp_path: Path, source: FakeSource) -> None:
    chain = Chain(tmp_path, source)
    chain.to(STATES[0])
    (chain.copy / "own.nq").write_bytes(b"<urn:own> <urn:p> <urn:o> .\n")
    with failing("HW-DAT-03", match="does not hold this file"):
        Rounds(tmp_path / "own", file_set(chain.copy / "own.nq")).run()
