"""Makes pages of values: templates that escape all text, how values read, and charts as SVG.

Only this module imports jinja2. Templates lie in `templates/`; nothing in them runs in a browser, and nothing is
fetched from elsewhere.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pkgutil import get_data
from typing import Any, Final
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape

from headwater.aggregator.status import SourceVerdict
from headwater.aggregator.store import RunRecord
from headwater.errors import messages
from headwater.quantities import human_octets, human_seconds, printable

_CLASSES: Final = {
    SourceVerdict.QUESTION: "ask",
    SourceVerdict.DEAD: "bad",
    SourceVerdict.FAILING: "bad",
    SourceVerdict.STALE: "poor",
    SourceVerdict.DEGRADED: "poor",
    SourceVerdict.FIRST_COPY: "new",
    SourceVerdict.NEW: "new",
    SourceVerdict.PAUSED: "idle",
    SourceVerdict.FOLLOWING: "good",
    SourceVerdict.RETIRED: "idle",
}
_OF_STATUS: Final = {0: "good", 1: "poor", 4: "poor", 5: "poor", 130: "idle"}
_MOST_BARS: Final = 60
_WIDTH, _HEIGHT = 720, 120


def _file(name: str) -> str:
    return (get_data("headwater.aggregator", f"templates/{name}") or b"").decode()


def _shown(value: Any) -> Any:
    return printable(value) if type(value) is str else value


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _file(name) or None),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        octets=human_octets,
        seconds=human_seconds,
        number=lambda value: f"{value:,}",
        moment=moment,
        mark=mark,
        kind=kind_of_status,
        advice=advice_on,
        link=address,
    )
    made.globals["style"] = Markup(style())  # noqa: S704 - our own file
    return made


@cache
def style() -> str:
    """The style sheet of all pages."""
    return _file("style.css")


@cache
def style_hash() -> str:
    """How a content policy names the style sheet where it stands in the page."""
    return f"sha256-{base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()}"


def page(template: str, **values: Any) -> bytes:
    """A page of a template, in UTF-8. What cannot be written in UTF-8 is replaced."""
    return _environment().get_template(template).render(**values).encode("utf-8", "replace")


# values as people read them


def moment(at: dt.datetime | None, now: dt.datetime, none: str = "never") -> Markup:
    """A time as its distance from now, with the time itself for who points at it."""
    if at is None:
        return escape(none)
    seconds = (now - at).total_seconds()
    said = f"{_rough(seconds)} ago" if seconds >= 0 else f"in {_rough(-seconds)}"
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%Y-%m-%d %H:%M:%S}", said
    )


def _rough(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= (2 * unit if unit > 1 else 0):
            count = int(seconds // unit)
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return "a moment"


def mark(verdict: str) -> str:
    """The class of a state in the style sheet."""
    return _CLASSES.get(SourceVerdict(verdict), "idle")


def kind_of_status(status: int | None) -> str:
    """The class of an exit status."""
    return "new" if status is None else _OF_STATUS.get(status, "bad")


def address(url: str) -> Markup:
    """A URL of a source: a link where a browser may follow it, else text."""
    url = printable(url)
    if not url.startswith(("http://", "https://")):
        return escape(url)
    return Markup('<a href="{0}" rel="noreferrer nofollow">{0}</a>').format(url)


def query_of(fields: Mapping[str, str]) -> str:
    """The beginning of a query that has these fields, for one more."""
    return f"{urlencode(fields)}&" if fields else ""


# charts


def _chart(title: str, description: str, inside: Iterable[Markup], height: int = _HEIGHT) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}: {}" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    ).format(_WIDTH, height, title, description, Markup("").join(inside))


def _bar(x: float, y: float, width: float, height: float, kind: str, said: str) -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"><title>{}</title></rect>').format(
        f"{x:.1f}", f"{y:.1f}", f"{width:.1f}", f"{height:.1f}", kind, printable(said)
    )


def durations(runs: Sequence[RunRecord]) -> Markup:
    """How long the last runs took, the newest at the right: a bar for each, in the colour of its result."""
    shown = list(reversed(runs[:_MOST_BARS]))
    took = [(one.ended_at - one.began_at).total_seconds() for one in shown]
    longest = max((*took, 0.001))
    step = _WIDTH / max(len(shown), 20)
    bars = [
        _bar(
            number * step + 1,
            _HEIGHT - height,
            step - 2,
            height,
            kind_of_status(one.exit_status),
            f"run {one.number}, {one.began_at:%Y-%m-%d %H:%M}: {human_seconds(seconds)}, exit status {one.exit_status}",
        )
        for number, (one, seconds) in enumerate(zip(shown, took, strict=True))
        for height in (max(2.0, seconds / longest * (_HEIGHT - 4)),)
    ]
    return _chart("Duration of runs", f"{len(shown)} runs, the longest {human_seconds(longest)}", bars)


def results(runs: Sequence[RunRecord]) -> Markup:
    """The results of the last runs as a strip, the newest at the right."""
    shown = list(reversed(runs[:_MOST_BARS]))
    step = _WIDTH / max(len(shown), 20)
    bars = [
        _bar(
            number * step + 1,
            0,
            step - 2,
            24,
            kind_of_status(one.exit_status),
            f"run {one.number}, {one.began_at:%Y-%m-%d %H:%M}: exit status {one.exit_status} {one.reason}",
        )
        for number, one in enumerate(shown)
    ]
    good = sum(one.exit_status == 0 for one in shown)
    return _chart("Results of runs", f"{good} of {len(shown)} ended with 0", bars, 24)


def changes_by_day(runs: Sequence[RunRecord], now: dt.datetime) -> Markup:
    """How many resources were created, updated and deleted on each of the last 30 days; empty where none was."""
    days = [(now - dt.timedelta(days=back)).date() for back in range(29, -1, -1)]
    counts = {day: [0, 0, 0] for day in days}
    for one in runs:
        if (found := counts.get(one.ended_at.date())) is not None:
            for place, count in enumerate((one.created, one.updated, one.deleted)):
                found[place] += count
    most = max(1, *(sum(found) for found in counts.values()))
    step, bars = _WIDTH / len(days), []
    for number, (day, found) in enumerate(counts.items()):
        top = float(_HEIGHT)
        for kind, word, count in zip(("good", "new", "bad"), ("created", "updated", "deleted"), found, strict=True):
            height = count / most * (_HEIGHT - 4)
            top -= height
            if count:
                bars.append(_bar(number * step + 1, top, step - 2, height, kind, f"{day}: {count:,} {word}"))
    total = sum(sum(found) for found in counts.values())
    if not total:
        return Markup("")
    return _chart("Changes by day", f"{total:,} in 30 days, at most {most:,} on one day", bars)


# advice


def advice_on(code: str) -> str:
    """What the operator of a source can do about a defect, by the code or the rule that a run has told."""
    if (known := messages().get(code)) is not None:
        return known.advice
    found = _advice()
    parts = code.split("-")
    return next((found[key] for key in (code, "-".join(parts[:2]), parts[0]) if key in found), "")


@cache
def _advice() -> dict[str, str]:
    """Advice by rule, or by the beginning of rules."""
    lines = (line.partition(": ") for line in _file("advice.txt").splitlines() if not line.startswith("#"))
    return {code: text for codes, _, text in lines if text for code in codes.split()}
