"""The program with an end like by `kill -9` at a phase that a file names, and with a note of what its steps take.

    python -m tests.datasets.chain.killed_program FOLDER ARGUMENT...

`FOLDER/phase` has the name of a phase and a number: the process that comes to it for that time removes the file and
ends. To `FOLDER/steps` a line is added for each step that is done.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

PUBLISHING: Final = {
    "dataset and patch were written": "headwater.source.published_dataset:PublishedDataset._write",
    "the dataset was read": "headwater.source.published_dataset:PublishedDataset._read",
    "the patch was proved": "headwater.source.published_dataset:PublishedDataset._prove",
    "a file was synced": "headwater.datasets.dataset_folder:sync_file",
    "a file was placed": "headwater.datasets.dataset_folder:DatasetFolder.place",
    "the change was recorded": "headwater.source.published_dataset:PublishedDataset._record",
    "the state before was removed": "headwater.datasets.dataset_folder:DatasetFolder.keep",
    "a document was stored": "headwater.publish.store_writer:StoreWriter.blocks",
    "the Change List was written": "headwater.publish.change_lists:ChangeLists._write",
    "the Resource List was written": "headwater.publish.resource_lists:ResourceLists.publish",
    "the publication was noted": "headwater.publish.store_writer:PublicationJob.note",
}
"""Phases of a source, each a function: before it, and after it."""

FOLLOWING: Final = {
    "the base was compared": "headwater.sync.transfer.patching:file_has",
    "the patch was applied to the file": "headwater.sync.transfer.patching:Patching._apply_to_dataset",
    "the patch was merged": "headwater.rdf.unified_diff:merge_patches",
    "the file was placed": "headwater.sync.copy.file_tree:FileTree.place",
    "the position was moved": "headwater.sync.update.set_sync:SetSync._keep_reading",
    "the state was made": "headwater.sync.dataset_sync:write_canonical",
    "the state was kept": "headwater.sync.dataset_sync:KeptStates.state_of",
    "its name was synced": "headwater.sync.dataset_sync:sync_folder",
    "the differences were made": "headwater.sync.dataset_sync:write_patch",
    "the store was patched": "headwater.triplestores.embedded_store:EmbeddedStore.apply",
    "the endpoint was told what is under way": "headwater.triplestores.sparql_store:SparqlStore._note",
    "a batch was sent": "headwater.triplestores.sparql_store:SparqlStore._send",
    "the endpoint got its position": "headwater.triplestores.sparql_store:SparqlStore._conclude",
    "other states were removed": "headwater.sync.dataset_sync:KeptStates.keep_only",
}
"""Phases of a destination."""

LOADING: Final = {
    "the store was loaded": "headwater.triplestores.embedded_store:EmbeddedStore.load",
    "a batch was sent": FOLLOWING["a batch was sent"],
}
"""Phases of a first run."""

OFTEN: Final = {"a batch was sent": 2, "a file was synced": 2, "a file was placed": 2, "a document was stored": 3}
"""Phases that come several times in a change."""

_OF_ANY: Final = {"something was synced": "os:fsync"}
_STEPS: Final = {
    "source: read, sort and compare": PUBLISHING["the dataset was read"],
    "source: prove": PUBLISHING["the patch was proved"],
    "source: check": "headwater.source.published_dataset:PublishedDataset.check",
    "source: write documents": "headwater.publish.publisher:Publisher.publish",
    "copy: hash of the base": FOLLOWING["the base was compared"],
    "copy: patch the file": FOLLOWING["the patch was applied to the file"],
    "stores: canonical form": FOLLOWING["the state was kept"],
    "stores: compare": FOLLOWING["the differences were made"],
    "embedded store: load": "headwater.triplestores.embedded_store:EmbeddedStore.load",
    "embedded store: patch": "headwater.triplestores.embedded_store:EmbeddedStore.apply",
    "endpoint: load": "headwater.triplestores.sparql_store:SparqlStore.load",
    "endpoint: patch": "headwater.triplestores.sparql_store:SparqlStore.apply",
}


def phases(table: dict[str, str]) -> list[str]:
    """The names of the phases of a table, and those that all have: each before and after."""
    return [f"{when} {name}" for name in (*table, *_OF_ANY) for when in ("before", "after")]


class Phases:
    """Ends the process at the phase that the file names."""

    def __init__(self, folder: Path) -> None:
        self._wanted = folder / "phase"
        self._steps = folder / "steps"
        self._times: Counter[str] = Counter()

    def come_to(self, phase: str) -> None:
        """End the process, if it is to."""
        try:
            name, _, number = self._wanted.read_text().rpartition(" ")
        except OSError:
            return
        if name == phase:
            self._times[phase] += 1
            if self._times[phase] >= int(number):
                self._wanted.unlink()
                os.kill(os.getpid(), signal.SIGKILL)

    def note(self, step: str, seconds: float) -> None:
        """Add a line for a step."""
        with self._steps.open("a") as file:
            file.write(f"{step}\t{seconds:.2f}\n")

    def wrap(self, place: str, before: Callable[[], None], after: Callable[[float], None]) -> None:
        """Have these called before and after a function, `module:Class.method` or `module:function`."""
        module, _, path = place.partition(":")
        home: Any = import_module(module)
        *above, name = path.split(".")
        for one in above:
            home = getattr(home, one)
        real = getattr(home, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            before()
            began = time.perf_counter()
            done = real(*given, **named)
            after(time.perf_counter() - began)
            return done

        setattr(home, name, wrapped)


def _prepare(folder: Path) -> None:
    ours = Phases(folder)
    for step, place in _STEPS.items():
        ours.wrap(place, lambda: None, lambda seconds, step=step: ours.note(step, seconds))  # type: ignore[misc]
    for name, place in {**PUBLISHING, **FOLLOWING, **LOADING, **_OF_ANY}.items():
        ours.wrap(
            place,
            lambda name=name: ours.come_to(f"before {name}"),  # type: ignore[misc]
            lambda _seconds, name=name: ours.come_to(f"after {name}"),  # type: ignore[misc]
        )


if __name__ == "__main__":
    _prepare(Path(sys.argv[1]))
    from headwater import cli

    sys.exit(cli.run(sys.argv[2:]))
