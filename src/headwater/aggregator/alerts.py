"""Alerts of a service: which conditions of the rules hold, and what is told when one begins or ends.

Each condition is told once when it begins, and once when it is over where the rule has `recovered`. All is decided over
values: the rules, the state of the fleet, and what was told before. What is told at one look is one message.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from headwater.aggregator.configuration import AlertRule
from headwater.aggregator.status import FleetStatus, SourceStatus, SourceVerdict
from headwater.aggregator.store import Life
from headwater.quantities import human_octets, human_seconds, printable, seconds_from
from headwater.spec.records import ToDict

RECOVERED: Final = "recovered"
_MOST_LINES: Final = 50
_LONGEST: Final = 300


class Alert(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """A condition that has begun, or (`is_over`) is over; `source` or `sink` names whose it is, or neither: of all."""

    condition: str
    text: str
    since: dt.datetime
    is_over: bool = False
    source: str | None = None
    sink: str | None = None


class AlertMessage(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What is delivered of one rule at one time: alerts, or a summary."""

    rule: str
    at: dt.datetime
    subject: str
    text: str
    alerts: tuple[Alert, ...] = ()
    counts: dict[str, int] = {}
    """Of a summary: sources by state."""


class WaitingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that has not been delivered yet."""

    message: AlertMessage
    tries: int = 0
    next_at: dt.datetime | None = None


class AlertMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What was told: alerts that hold, by rule and condition; the day of each rule's last summary; what waits."""

    holding: dict[str, dict[str, Alert]] = {}
    summaries: dict[str, str] = {}
    waiting: tuple[WaitingMessage, ...] = ()


def is_silent(rule: AlertRule, source: SourceStatus) -> bool:
    """Whether a rule says nothing of a source: it is named, or has a tag that is; or has none of the rule's tags."""
    words = {source.name, *source.tags}
    return bool(words & set(rule.silent)) or bool(rule.tags and not set(rule.tags) & set(source.tags))


_OfSource = Callable[[SourceStatus, float, dt.datetime], str]


def _stale(source: SourceStatus, seconds: float, now: dt.datetime) -> str:
    if not seconds:
        return "no sound run for too long" if source.verdict is SourceVerdict.STALE else ""
    since = source.sound_at or source.life_since
    age = 0.0 if since is None else (now - since).total_seconds()
    return f"no sound run for {human_seconds(age)}" if age > seconds else ""


def _failing(source: SourceStatus, _amount: float, _now: dt.datetime) -> str:
    is_so = source.life in (Life.FAILING, Life.DEAD)
    return f"failing: {source.reason or 'no reason is known'}" if is_so else ""


_OF_SOURCES: Final[Mapping[str, _OfSource]] = {
    "failing": _failing,
    "dead": lambda one, _amount, _now: f"dead: {one.reason}" if one.life is Life.DEAD else "",
    "degraded": lambda one, _amount, _now: f"degraded: {one.reason}" if one.life is Life.DEGRADED else "",
    "question": lambda one, _amount, _now: (
        f"{one.question}: {one.question_text}" if one.verdict is SourceVerdict.QUESTION else ""
    ),
    "held_back": lambda one, _amount, _now: f"{one.held_back:,} changes are held back" if one.held_back else "",
    "defects": lambda one, amount, _now: f"{one.defects:,} defects" if one.defects >= max(1, amount) else "",
    "stale": _stale,
}
"""What each word of `on` says of a source, empty where it does not hold; the amount stands behind a colon."""


def amount_of(word: str) -> tuple[str, float]:
    """A word of `on` and the amount behind its colon: a number, or a duration in seconds; 0: there is none."""
    name, _, text = word.partition(":")
    return name, seconds_from(text) or 0.0


def conditions(rule: AlertRule, fleet: FleetStatus) -> Iterator[tuple[str, Alert]]:
    """The conditions of a rule that hold, each with a key of its own."""
    now = fleet.time
    for word in rule.on:
        name, amount = amount_of(word)
        if (holds := _OF_SOURCES.get(name)) is not None:
            for source in fleet.sources:
                if source.verdict is SourceVerdict.RETIRED or is_silent(rule, source):
                    continue
                if text := holds(source, amount, now):
                    yield f"{word} {source.name}", Alert(condition=name, text=text, since=now, source=source.name)
        elif name == "sink":
            for sink in fleet.sinks:
                behind = f"{human_seconds(sink.lag_seconds)} behind" if sink.lag_seconds > amount > 0 else ""
                fails = f"fails: {sink.failure}" if sink.failures and not amount else ""
                if text := behind or fails:
                    yield f"{word} {sink.name}", Alert(condition=name, text=text, since=now, sink=sink.name)
        elif name == "disk" and fleet.is_full:
            yield word, Alert(condition=name, text=f"only {human_octets(fleet.free_octets)} are free", since=now)


def judge(
    rules: Sequence[AlertRule], fleet: FleetStatus, memory: AlertMemory, local: dt.datetime | None = None
) -> AlertMemory:
    """What is remembered after a look at the fleet: messages about what has begun or is over wait to be delivered.

    `local`: the time of day where the service runs, for summaries. Of rules that are no more nothing is remembered.
    """
    holding: dict[str, dict[str, Alert]] = {}
    waiting = list(memory.waiting)
    summaries = dict(memory.summaries)
    sources = {one.name: one for one in fleet.sources}
    for rule in rules:
        before = memory.holding.get(rule.name, {})
        now = {key: before.get(key, alert) for key, alert in conditions(rule, fleet)}
        holding[rule.name] = now
        news = [alert for key, alert in now.items() if key not in before]
        if RECOVERED in rule.on:
            news += [
                replace(alert, is_over=True)
                for key, alert in before.items()
                if key not in now and not _is_dropped(rule, alert, sources)
            ]
        if news:
            waiting.append(WaitingMessage(message=_message(rule, fleet, news)))
        day = "" if local is None else f"{local:%Y-%m-%d}"
        if rule.summary and local is not None and summaries.get(rule.name) != day and f"{local:%H:%M}" >= rule.summary:
            if rule.name in summaries or f"{local:%H:%M}" == rule.summary:
                waiting.append(WaitingMessage(message=_summary(rule, fleet)))
            summaries[rule.name] = day
    known = {rule.name for rule in rules}
    return AlertMemory(
        holding=holding,
        summaries={name: day for name, day in summaries.items() if name in known},
        waiting=tuple(one for one in waiting if one.message.rule in known),
    )


def _is_dropped(rule: AlertRule, alert: Alert, sources: Mapping[str, SourceStatus]) -> bool:
    """Whether nothing is said of the end: the source is silenced by now, or not followed any more."""
    source = None if alert.source is None else sources.get(alert.source)
    if alert.source is None:
        return False
    return source is None or source.verdict is SourceVerdict.RETIRED or is_silent(rule, source)


def _message(rule: AlertRule, fleet: FleetStatus, news: Sequence[Alert]) -> AlertMessage:
    first = news[0]
    subject = _line(first) if len(news) == 1 else f"{len(news):,} alerts, the first: {_line(first)}"
    lines = [_line(one) for one in news[:_MOST_LINES]]
    if len(news) > _MOST_LINES:
        lines.append(f"… and {len(news) - _MOST_LINES:,} more")
    text = "\n".join((*lines, "", _counts(fleet)))
    return AlertMessage(rule=rule.name, at=fleet.time, subject=subject[:_LONGEST], text=text, alerts=tuple(news))


def _summary(rule: AlertRule, fleet: FleetStatus) -> AlertMessage:
    wrong = [
        one
        for one in fleet.sources
        if one.verdict not in (SourceVerdict.FOLLOWING, SourceVerdict.RETIRED) and not is_silent(rule, one)
    ]
    lines = [
        printable(f"{one.name}: {one.verdict}" + (f", {one.reason}" if one.reason else ""))[:_LONGEST]
        for one in wrong[:_MOST_LINES]
    ]
    if len(wrong) > _MOST_LINES:
        lines.append(f"… and {len(wrong) - _MOST_LINES:,} more")
    lines += [f"sink {one.name}: {one.waiting:,} events behind" for one in fleet.sinks if one.waiting]
    subject = f"{len(wrong):,} of {len(fleet.sources):,} sources are not well" if wrong else "all sources are well"
    text = "\n".join((_counts(fleet), "", *lines))
    return AlertMessage(rule=rule.name, at=fleet.time, subject=subject, text=text, counts=fleet.counts)


def _line(alert: Alert) -> str:
    whose = alert.source or (f"sink {alert.sink}" if alert.sink else "the service")
    over = f"no longer {alert.condition.replace('_', ' ')}" if alert.is_over else alert.text
    return printable(f"{whose}: {over}")[:_LONGEST]


def _counts(fleet: FleetStatus) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in fleet.counts.items())
