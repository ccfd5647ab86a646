"""Takes lines that announce events into a push set: judges each on its own, records the good ones in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from headwater.catalog.interface import Metadata
from headwater.errors import UsageFault
from headwater.ingest.push.events.event_lines import Announced, BadEvent, read_announcement
from headwater.ingest.push.events.lines import Line
from headwater.ingest.push.feed import Feed, Outcome, OutcomeKind
from headwater.ingest.push.ingest_state import Effects, RequestProgress
from headwater.ingest.push.inverse_links import Draft, with_links

NO_NEWS = "no change: the set has this already"
_LONGEST_REASON = 300
NOT_HELD = "the set does not hold the resource"


class LineTooLong(BadEvent):
    """A line is longer than a record may be."""

    code: ClassVar[str] = "HW-ING-43"
    advice: ClassVar[str] = "Send one JSON object a line, with at most 500 links for a resource."


def take_lines(
    feed: Feed, lines: Sequence[Line], progress: Callable[[list[Outcome]], RequestProgress] | None = None
) -> list[Outcome]:
    """Record what the lines announce as one batch and say of each, in order, what became of it.

    What `progress` makes of the outcomes is kept together with the batch. Raises what the catalog raises; then
    nothing was recorded.
    """
    announced, refused = read_lines(feed, lines)

    def take() -> list[Outcome]:
        drafts, judged = judge(feed, announced)
        first, outcomes = feed.next_seq(), refused[:]
        for line, place, told in judged:
            seq = first + place if first is not None and place is not None else None
            outcomes.append(Outcome(line=line, status=200, seq=seq, reason=told))
        outcomes.sort(key=lambda one: one.line)
        effects = Effects(progress=progress(outcomes) if progress is not None else None)
        if announced or progress is not None:  # that something is no news is as sure as what is recorded
            feed.write(drafts, effects)
        return outcomes

    return feed.attempt(take)


def read_lines(feed: Feed, lines: Sequence[Line]) -> tuple[list[tuple[int, Announced]], list[Outcome]]:
    """The announcements of the good lines, and the outcomes of the others."""
    announced: list[tuple[int, Announced]] = []
    refused: list[Outcome] = []
    for line in lines:
        try:
            if line.text is None:
                raise LineTooLong("the line is too long")
            one = read_announcement(line.text, feed.locations)
            feed.check(one.uri, one.metadata or Metadata())
            announced.append((line.number, one))
        except UsageFault as fault:
            refused.append(refusal(line.number, fault))
    return announced, refused


def refusal(line: int, fault: UsageFault) -> Outcome:
    """The outcome of a line that a fault refuses: 422 when it can be read and not taken."""
    status = 413 if isinstance(fault, LineTooLong) else 400 if isinstance(fault, BadEvent) else 422
    where = f" ({fault.where})" if fault.where else ""
    rule = f" [{fault.rule}]" if fault.rule else ""
    return Outcome(line=line, status=status, code=fault.code, reason=f"{fault.what}{where}"[:_LONGEST_REASON] + rule)


Judged = tuple[int, int | None, str | None]
"""A line, the place of its draft, and what there is to say when it has none."""


def judge(feed: Feed, announced: Sequence[tuple[int, Announced]]) -> tuple[list[Draft], list[Judged]]:
    """Which announcements are news to the set as it is, and the events that they come to."""
    present: dict[str, Metadata | None] = {
        uri: resource.metadata for uri, resource in feed.held(one.uri for _, one in announced).items()
    }
    implied = feed.implied(one.uri for _, one in announced)
    drafts: list[Draft] = []
    judged: list[Judged] = []
    for line, one in announced:
        new = None if one.metadata is None else with_links(one.metadata, implied.get(one.uri, ()))
        old = present.get(one.uri)
        if new is None and old is None:
            judged.append((line, None, NOT_HELD))
        elif one.change is None and new == old:
            judged.append((line, None, NO_NEWS))
        else:
            present[one.uri] = new
            judged.append((line, len(drafts), None))
            drafts.append(Draft(uri=one.uri, metadata=new, statements=one.statements))
    return drafts, judged


class Summary(msgspec.Struct, kw_only=True):
    """What lines came to, counted: `taken` as events or into the load, `ignored` as no news, `rejected`."""

    lines: int = 0
    taken: int = 0
    ignored: int = 0
    rejected: int = 0
    first_seq: int | None = None
    last_seq: int | None = None

    def count(self, outcomes: Sequence[Outcome]) -> None:
        """Add these outcomes."""
        for one in outcomes:
            self.lines += 1
            if one.kind is OutcomeKind.REJECTED:
                self.rejected += 1
            elif one.kind is OutcomeKind.IGNORED:
                self.ignored += 1
            else:
                self.taken += 1
            if one.seq is not None:
                self.first_seq = one.seq if self.first_seq is None else self.first_seq
                self.last_seq = one.seq

    def add(self, other: Summary) -> None:
        """Add the counts of what came after."""
        for name in ("lines", "taken", "ignored", "rejected"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_seq = other.first_seq if self.first_seq is None else self.first_seq
        self.last_seq = self.last_seq if other.last_seq is None else other.last_seq
