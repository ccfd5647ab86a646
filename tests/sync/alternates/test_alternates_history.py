"""A law over random histories: with preferred alternates a copy that follows is what a new one would be (DST-S3)."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from headwater.errors import Exit
from headwater.sync.options import SyncOptions
from headwater.transport.transport import Transport
from tests.support.copying import IMPATIENT, check, go, run_over, tree
from tests.support.fake_source import Source, sha, url
from tests.sync.alternates.test_prefer_type import HTML, PDF, PREFER, Papers
from tests.sync.metadata.test_metadata_history import Killed, killed

PAGES, PDFS = ("a", "b", "c", "d"), ("x.pdf", "y.pdf", "z.pdf")


class Model:
    """Pages that share PDF files, some of which have entries of their own."""

    def __init__(self, papers: Papers, chance: random.Random) -> None:
        self.papers = papers
        self.chance = chance
        self.bodies = {name: name.encode() for name in PDFS}
        self.leads: dict[str, str | None] = {}
        self.gone: set[str] = set()
        """What was dropped since the last run, which would not see that in a list that tells of it again."""

    def change(self) -> None:
        name = self.chance.choice([one for one in (*PAGES, *PDFS) if one not in self.gone])
        if name in self.papers.entries and self.chance.random() < 0.3:
            self.drop(name)
        elif name in PAGES:
            self.leads[name] = self.chance.choice([None, *(one for one in PDFS if one not in self.gone)])
            self.put(name)
        else:
            self.bodies[name] = f"{name} {self.chance.random()}".encode()
            kind = "updated" if name in self.papers.entries else "created"
            if self.chance.random() < 0.5 or kind == "updated":
                self.papers.put(name, self.bodies[name], kind=kind, type=PDF)
            self.papers.body(name, self.bodies[name], PDF)
            for page in [page for page in PAGES if page in self.papers.entries and self.leads[page] == name]:
                self.put(page)  # whose link has the hash of the file

    def put(self, page: str) -> None:
        other = self.leads[page]
        links = [] if other is None else [self.papers.pdf(other, self.bodies[other])]
        kind = "updated" if page in self.papers.entries else "created"
        self.papers.put(page, f"{page} {self.chance.random()}".encode(), *links, kind=kind)

    def drop(self, name: str) -> None:
        """The links to a file that goes end with it, and no change of a resource says so."""
        self.papers.drop(name)
        self.gone.add(name)
        for page in [page for page in PAGES if page in self.papers.entries and self.leads[page] == name]:
            self.leads[page], body = None, self.papers.site.source.pages[f"/set/resources/{page}"].body  # type: ignore[union-attr]
            self.papers.entries[page] = url(self.papers.site.uri(page), hash=sha(body), length=len(body), type=HTML)


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_follows_a_random_history(source: Source, dest: Path, seed: int) -> None:
    """By baselines and changes, with killed runs, and lists that are read again though changes are later."""
    papers, chance = Papers(source), random.Random(seed)
    papers.clock = 20.0
    model = Model(papers, chance)
    with Transport(IMPATIENT) as wire:
        for step in range(8):
            model.gone.clear()
            for _ in range(chance.randrange(1, 8)):
                model.change()
            papers.publish(baseline=not step or chance.random() < 0.3)
            options = SyncOptions(**PREFER, max_delete=1.0, baseline=chance.random() < 0.3)
            if chance.random() < 0.3:
                with contextlib.suppress(Killed):
                    run_over(wire, source.base, dest, options, each=killed)
            report = run_over(wire, source.base, dest, options)
            assert report.exit_status == Exit.DONE, (seed, step, report)
            papers.publish(baseline=True)
            new = dest.parent / f"new {step}"
            assert go(source.base, new, **PREFER).status == Exit.DONE
            assert tree(dest) == tree(new), (seed, step)
            audit = check(source.base, dest)
            assert audit.verdict == "in sync", (seed, step, audit.sets[0].findings)
