"""An RDF dataset into the embedded store, against the bulk loader alone; a patch of 10,000 lines without a reload."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyoxigraph

from bench.rows import Row, in_turns, row
from headwater.rdf.dataset_choice import RdfFile
from headwater.rdf.syntaxes import N_QUADS
from headwater.rdf.unified_diff import merge_patches, write_patch
from headwater.sync.dataset_sync import KeptState, KeptStates, bring_up
from headwater.triplestores.embedded_store import EmbeddedStore
from headwater.triplestores.sparql_updates import StorePosition

QUADS = int(os.environ.get("HEADWATER_BENCH_QUADS", "1000000"))
LINES = 10_000
_URI = "http://bench.example/dataset.nq"
_FORMAT = pyoxigraph.RdfFormat.N_QUADS


def run(quick: bool) -> list[Row]:
    """The first load, and patches."""
    quads, lines = (QUADS // 20, LINES // 10) if quick else (QUADS, LINES)
    with tempfile.TemporaryDirectory(dir=os.environ.get("HEADWATER_BENCH_DIR")) as folder:
        base = Path(folder)
        old, new = base / f"{0:064x}.nq", base / f"{1:064x}.nq"
        _write(old, quads, 0)
        _write(new, quads, lines // 2)
        rows = [_first_load(base, old, quads)]
        EmbeddedStore(base / "store").load(old, _position(0, quads))
        rows.append(_patch(base, old, new, quads, lines))
        rows.append(_whole_run(base, quads, lines))
        return [*rows, *_followed(base, quads, lines)]


def _first_load(base: Path, dataset: Path, quads: int) -> Row:
    def ours() -> float:
        return _timed(lambda: EmbeddedStore(base / "ours").load(dataset, _position(0, quads)), base / "ours")

    def loader() -> float:
        def load() -> None:
            store = pyoxigraph.Store(str(base / "other"))
            store.bulk_load(path=str(dataset), format=_FORMAT)
            store.flush()

        return _timed(load, base / "other")

    mine, other = in_turns([ours, loader], 1 if quads > 5_000_000 else 3)
    size = dataset.stat().st_size / (1 << 20)
    what = f"first load of {quads:,} quads ({size:,.0f} MiB) into the embedded store"
    return row(what, mine, "bulk loader of pyoxigraph", other, bar=0.8)


def _patch(base: Path, old: Path, new: Path, quads: int, lines: int) -> Row:
    """There and back again, five times: only what the store does."""
    before, after = _lines_of(old), _lines_of(new)
    removed, added = sorted(before - after), sorted(after - before)
    store = EmbeddedStore(base / "store")
    taken = []
    for number in range(10):
        there = (removed, added) if number % 2 == 0 else (added, removed)
        began = time.perf_counter()
        store.apply(*there, _position(1 - number % 2, quads))
        taken.append(time.perf_counter() - began)
    store.close()
    found = sorted(taken)[len(taken) // 2]
    return {
        "work": f"apply a patch of {lines:,} lines to a store of {quads:,} quads",
        "ours": f"{found:.3f} s",
        "against": "a bar in seconds",
        "other": "2 s",
        "ratio": 2 / found,
        "bar": 1.0,
        "goal": 4.0,
        "note": f"without a reload; longest of ten {max(taken):.3f} s",
    }


def _whole_run(base: Path, quads: int, lines: int) -> Row:
    """With the two files compared, as a run does it."""
    kept, places = KeptStates(base / "kept"), []
    for number in range(2):
        path = base / f"{number:064x}.nq"
        with path.open("rb") as file:
            places.append(StorePosition(_URI, hashlib.file_digest(file, "sha256").hexdigest(), quads))
        kept.path(places[-1].sha256).hardlink_to(path)
    store = EmbeddedStore(base / "store")
    store.load(base / f"{0:064x}.nq", places[0])
    began = time.perf_counter()
    state = KeptState("", places[1].sha256, quads)
    told = bring_up(store, store.state(), kept, state, places[1], name="store")
    seconds = time.perf_counter() - began
    assert (told.done, told.removed + told.added) == ("patched", lines)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "work": f"bring a store of {quads:,} quads to a file with {lines:,} changes",
        "ours": f"{seconds:.1f} s",
        "note": f"both files compared; memory of the whole bench {memory:,.0f} MiB",
    }


def _followed(base: Path, quads: int, lines: int) -> list[Row]:
    """What a change costs a run before its store is patched: the patch applied to the file, the state kept."""
    folder = base / "followed"
    folder.mkdir()
    old, new, patch, made = (folder / name for name in ("old.nq", "new.nq", "patch.nqud", "made.nq"))
    _write(old, quads, 0)
    _write(new, quads, lines // 2)
    with patch.open("wb") as file:
        write_patch(old, new, file)
    digests = [f"sha-256:{hashlib.file_digest(path.open('rb'), 'sha256').hexdigest()}" for path in (old, new)]
    kept = KeptStates(folder / "kept")
    kept.state_of(_file(old, digests[0]), base)
    began = time.perf_counter()
    with old.open("rb") as file:
        assert digests[0] == f"sha-256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    assert digests[1] == f"sha-256:{merge_patches(old, [patch], made, scratch=folder).dataset.sha256}"
    applied = time.perf_counter()
    kept.state_of(_file(made, digests[1]), base)
    ended = time.perf_counter()
    what = f"a file of {quads:,} quads patched by {lines:,} lines, and verified"
    first: Row = {"work": what, "ours": f"{applied - began:.1f} s", "note": ""}
    note = "its canonical form made"
    return [first, {"work": "its state kept for a store", "ours": f"{ended - applied:.1f} s", "note": note}]


def _file(path: Path, digest: str) -> RdfFile:
    return RdfFile(_URI, os.fsencode(path), N_QUADS, digest)


def _write(path: Path, quads: int, changed: int) -> None:
    """A sorted file; so many of its statements have another value."""
    chance = random.Random(1)
    other = set(chance.sample(range(quads), changed))
    with path.open("w") as file:
        for start in range(0, quads, 100_000):
            file.writelines(
                f"<http://bench.example/resource/{n // 8:09d}> <http://bench.example/vocabulary#property{n % 8}>"
                f' "{"1" if n in other else "0"} of the resource {n}" .\n'
                for n in range(start, min(start + 100_000, quads))
            )


def _lines_of(path: Path) -> set[bytes]:
    """The statements in which the two files may differ."""
    with path.open("rb") as file:
        if path.name.startswith("0" * 63 + "1"):
            return {line for line in file if b'"1 of' in line}
        wanted = {line.replace(b'"1 of', b'"0 of') for line in _lines_of(path.with_name(f"{1:064x}.nq"))}
        return {line for line in file if line in wanted}


def _position(number: int, quads: int) -> StorePosition:
    return StorePosition(_URI, f"{number:064x}", quads)


def _timed(work: Callable[[], None], made: Path) -> float:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    shutil.rmtree(made)
    return seconds
