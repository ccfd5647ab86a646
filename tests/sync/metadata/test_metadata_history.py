"""A law over random histories: what is chosen is current; what was chosen stays until it is deleted (DST-S12)."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Exit
from headwater.sync.options import SyncOptions
from headwater.sync.reports import Done
from headwater.transport.transport import Transport
from tests.support.copying import IMPATIENT, check, run_over, tree
from tests.support.fake_source import Source
from tests.sync.metadata.test_metadata_choice import Library

CHOICES: tuple[dict[str, Any], ...] = (
    {"only_described": True},
    {"include": ("*.pdf",), "with_metadata": True},
    {"include": ("*.pdf", "2*"), "only_described": True, "with_metadata": True},
)


class Model:
    """The source as it is, and what a copy with this choice is to hold."""

    def __init__(self, library: Library, chance: random.Random, choice: dict[str, Any]) -> None:
        self.library = library
        self.chance = chance
        self.choice = choice
        self.bodies: dict[str, bytes] = {}
        self.by: dict[str, set[str]] = {}
        self.of: dict[str, set[str]] = {}
        self.held: dict[str, bytes] = {}
        self.names = [f"{number}.{kind}" for number in range(3) for kind in ("pdf", "xml", "rdf")]

    def change(self) -> None:
        name, chance = self.chance.choice(self.names), self.chance
        if name in self.bodies and chance.random() < 0.25:
            self.library.drop(name)
            for kept in (self.bodies, self.by, self.of):
                kept.pop(name, None)
            return
        self.by[name], self.of[name] = ({n for n in self.names if n != name and chance.random() < 0.1} for _ in "12")
        kind = "updated" if name in self.bodies else "created"
        if kind == "created" or chance.random() < 0.8:
            self.bodies[name] = f"{name} {chance.random()}".encode()
        links = self.library.by(*self.by[name]) + self.library.of(*self.of[name])
        self.library.put(name, self.bodies[name], links, kind=kind)

    def copied(self) -> dict[str, bytes]:
        """What is to be held now."""
        pairs = {(name, record) for name in self.by for record in self.by[name]}
        pairs |= {(content, name) for name in self.of for content in self.of[name]}
        described = {content for content, _ in pairs}
        patterns = self.choice.get("include", ("",))
        own = {
            n for n in self.names if any(n.endswith(p[1:]) if p[:1] == "*" else n.startswith(p[:1]) for p in patterns)
        }
        first = (own & described if self.choice.get("only_described") else own) & set(self.bodies)
        records = {record for content, record in pairs if content in own and content in self.bodies}
        chosen = first | (records if self.choice.get("with_metadata") else records & own)
        self.held = {name: body for name, body in self.held.items() if name in self.bodies}
        self.held |= {name: self.bodies[name] for name in chosen if name in self.bodies}
        return self.held


class Killed(Exception):
    """Ends a run in the midst of its transfers."""


def killed(_done: Done) -> None:
    raise Killed


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_follows_a_random_history(source: Source, dest: Path, seed: int) -> None:
    """By baselines, old and new, by changes, and by runs that were cut off; the audit agrees each time."""
    chance = random.Random(seed)
    library = Library(source)
    model = Model(library, chance, CHOICES[seed % len(CHOICES)])
    with Transport(IMPATIENT) as wire:
        for step in range(8):
            for _ in range(chance.randrange(1, 8)):
                model.change()
            library.publish(baseline=not step or chance.random() < 0.3)
            options = SyncOptions(**model.choice, max_delete=1.0, baseline=chance.random() < 0.3)
            if chance.random() < 0.3:
                with contextlib.suppress(Killed):
                    run_over(wire, source.base, dest, options, each=killed)
            report = run_over(wire, source.base, dest, options)
            assert (report.exit_status, tree(dest)) == (Exit.DONE, model.copied()), (seed, step)
            audit = check(source.base, dest)
            assert audit.verdict == "in sync", (seed, step, audit.sets[0].findings)
