"""Comparisons of DIT-ES documents: which tell of the same state, which is older, and what both say together.

A state (`resource`) has no number of its own: its `lastmod`, and the `timestamp` of its storage where there is one, are
all that tells where it belongs (DIT-A11, DIT-A13).
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby

import msgspec

from headwater.catalog.interface import Metadata
from headwater.ingest.push.dit_memo import NEVER_US
from headwater.ingest.push.dit_pairs import Happening, Present, State, Statement
from headwater.ingest.push.inverse_links import INVERSE
from headwater.spec.records import ChangeKind, Link
from headwater.spec.timestamps import to_microseconds

_WHEN_HELD = (ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.CREATED)
_WHEN_NOT = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED)
_NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


def agree(one: dt.datetime | None, other: dt.datetime | None) -> bool:
    """Whether two `lastmod` are of one state; one that is not stated contradicts nothing."""
    return one is None or other is None or one == other


def belong(state: State, happening: Happening) -> bool:
    """Whether a state came for a happening; one from before a deletion only when both state the same `lastmod`."""
    mine, other = state.metadata.lastmod, happening.lastmod
    return mine == other if state.is_doubted else agree(mine, other)


def lives_after(happening: Happening, to_come: Iterable[Happening], state: State) -> int:
    """How often the resource is deleted and made again after a happening with a change that the state may be of."""
    count, is_gone = 0, False
    for one in to_come:
        if one.change is ChangeKind.DELETED:
            is_gone = True
        elif is_gone and one.own is None and belong(state, one):
            count, is_gone = count + 1, False
    return count


def is_after_a_deletion(state: State, happening: Happening, to_come: Iterable[Happening]) -> bool:
    """Whether a state came after a deletion that came after the happening: it is of what was made after that."""
    return any(one.change is ChangeKind.DELETED and happening.order <= one.order < state.order for one in to_come)


def in_order(happenings: Iterable[Happening], now: dt.datetime, is_held: Callable[[str], bool]) -> list[Happening]:
    """Happenings by `datetime`, then by arrival, then as they can have happened to what is held or is not.

    The last for documents of several shards, whose order of arrival nobody knows, within a second of the seed's dates.
    """
    ordered: list[Happening] = []
    live: dict[str, bool] = {}
    count: Counter[tuple[str, ChangeKind]] = Counter()

    def rank(one: Happening) -> tuple[int, int]:
        is_live = live[one.uri] if one.uri in live else is_held(one.uri)
        count[one.uri, one.change] += 1  # deleted, created, deleted: they can have happened in turns only
        return count[one.uri, one.change], (_WHEN_HELD if is_live else _WHEN_NOT).index(one.change)

    by_time = sorted(happenings, key=lambda one: (one.at or now, one.order))
    for _, group in groupby(by_time, key=lambda one: (one.at or now, one.order)):
        count.clear()
        alike = sorted(group, key=rank)
        live |= {one.uri: one.change is not ChangeKind.DELETED for one in alike}
        ordered += alike
    return ordered


def moment_of(state: State) -> dt.datetime | None:
    """When it was so, as far as it is said."""
    return state.stored_at or state.metadata.lastmod


def age(state: State) -> dt.datetime:
    """By which of two states the older is told."""
    return state.metadata.lastmod or _NEVER


def is_outdone(state: State, other: State) -> bool:
    """Whether a state is as old as another one or older: by when they were stored, if both say so."""
    if state.stored_at is not None and other.stored_at is not None:
        return state.stored_at <= other.stored_at
    return age(state) <= age(other)


def newest(states: list[State]) -> State:
    """Of several without their happening the one that is the present state; of two as old the one that came last."""
    if all(one.stored_at is not None for one in states):
        return max(reversed(states), key=lambda one: (not one.is_doubted, one.stored_at or _NEVER, age(one)))
    return max(reversed(states), key=lambda one: (not one.is_doubted, age(one)))


def is_older(state: State, present: Present | None, gone_us: int) -> bool:
    """Whether a state without its happening is one from before what is known."""
    if present is None:  # of the same second as the deletion, it is what came after it (DIT-A6)
        moment = moment_of(state)
        return moment is not None and to_microseconds(moment) < gone_us
    mine, known = state.metadata.lastmod, present.metadata.lastmod
    if mine is None or known is None:
        return False
    return mine < known or (mine != known and to_microseconds(mine) <= present.note.before_us)


def replaced_until(present: Present | None, gone_us: int, lastmod: dt.datetime | None, now: dt.datetime) -> int:
    """Up to which `lastmod` other states are from before the one that comes now, of an older file (`Note.before_us`).

    A `lastmod` that is still to come tells nothing.
    """
    if lastmod is None:
        return 0
    until_us = gone_us
    if present is not None:
        known = present.metadata.lastmod
        until_us = max(present.note.before_us, to_microseconds(known) if known is not None and known <= now else 0)
    return until_us if until_us > to_microseconds(lastmod) else 0


def key_of(one: Happening) -> bytes | None:
    """By what a happening is known again (DIT-A12); None without a time, when nothing tells two of them apart."""
    if one.at is None:
        return None
    text = f"{to_microseconds(one.at)} {one.change.value} {one.uri}"
    if one.seq:  # its time may have been written without the fraction that told it from another (DIT-A6)
        text += f" {one.seq}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def key_of_second_deletion(one: Happening) -> bytes:
    """By what it is known that a resource was deleted more than once within the second of a happening (DIT-A12)."""
    return hashlib.blake2b(f"again {one.at} {one.uri}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def key_of_state(uri: str, metadata: Metadata) -> bytes:
    """By what a state is known again that has been replaced or deleted. Links count for nothing: others add some."""
    told = [uri, *(getattr(metadata, name) for name in ("lastmod", "hash", "length", "type", "encoding", "changefreq"))]
    return hashlib.blake2b(b"state " + msgspec.json.encode(told), digest_size=16).digest()


def may_be_repeated(state: State, present: Present | None, *, is_gone: bool) -> bool:
    """Whether no `lastmod` tells that a state is not one of before: nothing is there, or something with the same one.

    Who announces changes announces each. Where none was ever announced, a resource may become what it was.
    """
    if present is None:
        return is_gone
    return present.note.at_us > NEVER_US and present.metadata.lastmod == state.metadata.lastmod


def was_ahead(present: Present, happening: Happening, told: Metadata | None) -> bool:
    """Whether the set holds the happening's state already, without it: what was logged then is not logged again."""
    agrees = present.note.ahead and agree(present.metadata.lastmod, happening.lastmod)
    return agrees and (told is None or told == present.metadata)


def merged(first: State, second: State) -> State:
    """Two documents of one state: what the newer one leaves out is taken from the older (DIT-A9)."""
    one, two = first.metadata, second.metadata
    links: dict[Link, None] = dict.fromkeys((*one.links, *two.links))
    metadata = Metadata(
        lastmod=two.lastmod or one.lastmod,
        hash=two.hash or one.hash,
        length=one.length if two.length is None else two.length,
        type=two.type or one.type,
        encoding=two.encoding or one.encoding,
        changefreq=two.changefreq or one.changefreq,
        links=tuple(links),
    )
    statements = tuple(dict.fromkeys((*first.statements, *second.statements)))
    kept = second.kept or first.kept
    return msgspec.structs.replace(second, metadata=metadata, statements=statements, kept=kept)


def remembered(uri: str, present: Present, said: Iterable[Statement]) -> State:
    """A resource that is deleted before its own change has come, as the document that it was.

    `said` are its own statements: the other links of that kind are those of others (DIT-24).
    """
    statements = tuple(said)
    rels = {rel for rel, _ in statements}
    links = tuple(one for one in present.metadata.links if one.rel not in INVERSE or one.rel in rels)
    metadata = msgspec.structs.replace(present.metadata, links=links)
    return State(uri=uri, metadata=metadata, statements=statements, kept=present.note.kept, order=-1)
