"""The report for the operator of a source: what is wrong with it and what to do, as one file that needs nothing else.

It has no script, asks no other host, and is small enough for mail, however much is wrong: of each kind the commonest
come first, with examples.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headwater.aggregator import rendering
from headwater.aggregator.configuration import AggregatorConfig
from headwater.aggregator.source_run import copy_of
from headwater.aggregator.store import AggregatorStore
from headwater.aggregator.views import defects_of, source_of
from headwater.sync.copy_status import CopyStatus
from headwater.version import __version__

MOST_OCTETS: Final = 250_000
_RUNS: Final = 200
_EXAMPLES: Final = (100, 30, 10, 3)
"""Of each kind so many are shown, or fewer until the report is small enough."""
_LONGEST: Final = 500


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Resources that could not be copied for one reason."""

    reason: str
    count: int
    since: dt.datetime
    examples: tuple[str, ...]


def failure_groups(copy: CopyStatus | None, most: int) -> list[FailureGroup]:
    """The failed resources of a copy by reason, the commonest first, `most` of them with as many examples each."""
    found: dict[str, list[Any]] = defaultdict(list)
    for one in (one for each in copy.sets for one in each.failures) if copy else ():
        found[one.reason].append(one)
    groups = [
        FailureGroup(
            reason=reason[:_LONGEST],
            count=len(those),
            since=min(one.since for one in those),
            examples=tuple(one.uri[:_LONGEST] for one in those[: min(most, 10)]),
        )
        for reason, those in found.items()
    ]
    return sorted(groups, key=lambda one: -one.count)[:most]


def findings_of(sets: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """What an audit found, the first `most`, where its record has it."""
    found = [one for each in sets for one in each.get("findings", ())][:most]
    return [
        {name: str(one.get(name) or "")[:_LONGEST] for name in ("verdict", "uri", "path", "reason")} for one in found
    ]


def report_page(config: AggregatorConfig, store: AggregatorStore, name: str) -> bytes | None:
    """The report of a source, in MOST_OCTETS at most; None: there is none of this name. Raises StoreFault."""
    now = dt.datetime.now(dt.UTC)
    source = source_of(config, store, name, now)
    if source is None:
        return None
    runs = store.runs(name, _RUNS)
    audit = next((one for one in store.runs(name, 1, "audit") if one.report and "sets" in one.report), None)
    sets = (audit.report or {}).get("sets", []) if audit else []
    copy = copy_of(config.state / name)
    warnings = sorted(defects_of(runs), key=lambda one: -one[1])
    page = b""
    for most in _EXAMPLES:
        page = rendering.page(
            "report.html",
            source=source,
            runs=[one for one in runs if one.exit_status][:most],
            ended=len(runs),
            good=sum(one.exit_status == 0 for one in runs),
            groups=failure_groups(copy, most),
            refusals=[one[:_LONGEST] for each in copy.sets for one in each.refusals][:most] if copy else [],
            warnings=[(rule, count, said[:_LONGEST]) for rule, count, said in warnings[:most]],
            more=max(0, len(warnings) - most),
            audit=audit,
            sets=sets[:most],
            findings=findings_of(sets, most),
            results=rendering.results(runs),
            now=now,
            version=__version__,
        )
        if len(page) <= MOST_OCTETS:
            break
    return page
