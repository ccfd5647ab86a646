"""RDF datasets: publication of a change of 10,000 lines in a dataset of some million statements, step by step."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.rows import Row
from headwater.publish.publisher import Publisher
from headwater.source import published_dataset as intake
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.published_dataset import PublishedDataset
from headwater.source.source import Source

QUADS = 2_000_000
LINES = 10_000
_STEPS: tuple[tuple[Any, str, str], ...] = (
    (PublishedDataset, "_read", "read"),
    (PublishedDataset, "check", "checked"),
    (PublishedDataset, "_prove", "proved"),
    (PublishedDataset, "_counted", "counted"),
    (Publisher, "publish", "published"),
)


def run(quick: bool) -> list[Row]:
    """The seconds of the first publication, and of one of a change."""
    quads, lines = (QUADS // 20, LINES // 10) if quick else (QUADS, LINES)
    intake.SETTLED_SECONDS = -1.0  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        path = base / "dataset.nq"
        statements = [_statement(number, 0) for number in range(quads)]
        random.Random(1).shuffle(statements)
        path.write_text("".join(statements))
        config = SourceConfig(
            state=str(base / "state"),
            base_url="http://bench.example",
            sets=(SetConfig(name="d", profile="rdf-dataset", dataset=str(path)),),
        )
        first = _round(config)
        for number in range(lines // 2):
            statements[number] = statements[number].replace('"0 ', '"1 ')
        path.write_text("".join(statements))
        del statements
        later = _round(config)
        assert _patch_lines(base) == lines
        mebioctets = path.stat().st_size / (1 << 20)
    return [
        {
            "work": f"{what} of {quads:,} statements in any order ({mebioctets:,.0f} MiB)",
            "ours": f"{seconds['all']:.1f} s",
            "note": ", ".join(f"{step} {value:.1f} s" for step, value in seconds.items() if step != "all"),
        }
        for what, seconds in (
            ("first publication", first),
            (f"publication of a change of {lines:,} lines in a dataset", later),
        )
    ]


def _statement(number: int, value: int) -> str:
    subject = f"<http://bench.example/resource/{number // 8:08d}>"
    predicate = f"<http://bench.example/vocabulary#property{number % 8}>"
    return f'{subject} {predicate} "{value} of the resource {number}" .\n'


def _round(config: SourceConfig) -> dict[str, float]:
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    with timed(seconds), Source(config) as source:
        source.run_once()
    seconds["all"] = time.perf_counter() - began
    return seconds


def _patch_lines(base: Path) -> int:
    newest = max((base / "state" / "datasets" / "d").glob("*.nqud"))
    return newest.read_bytes().count(b"\n")


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Note how long each step takes."""
    with ExitStack() as stack:
        for home, name, step in _STEPS:
            method = getattr(home, name)
            setattr(home, name, _timing(method, seconds, step))
            stack.callback(setattr, home, name, method)
        yield


def _timing(method: Callable[..., Any], seconds: dict[str, float], step: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - began

    return call
