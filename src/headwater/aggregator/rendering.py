"""Makes pages of values: templates that escape all text, and how values read.

Only this module imports jinja2. Templates lie in `templates/`; nothing in them runs in a browser, and nothing is
fetched from elsewhere.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from functools import cache
from pkgutil import get_data
from typing import Any, Final

import jinja2
import msgspec
from markupsafe import Markup, escape

from headwater.errors import messages
from headwater.quantities import counted, human_octets, human_seconds, printable
from headwater.version import __version__

_REPORT_CHARACTERS: Final = 100_000


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
        advice=advice_on,
        link=address,
        indented=indented,
        counted=counted,
        took=lambda run: (run.ended_at - run.began_at).total_seconds(),
        changes=lambda run: run.created + run.updated + run.deleted,
    )
    made.globals.update(style=Markup(style()), version=__version__)  # noqa: S704 - our own file
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
    said = f"{human_seconds(seconds)} ago" if seconds >= 0 else f"in {human_seconds(-seconds)}"
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        f"{at:%Y-%m-%dT%H:%M:%SZ}", f"{at:%Y-%m-%d %H:%M:%S}", said
    )


def indented(value: object) -> list[str]:
    """The lines of a value as JSON, as many as a browser shows well."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > _REPORT_CHARACTERS:
        text = text[:_REPORT_CHARACTERS] + "\n… (the JSON of this page has the rest)"
    return text.split("\n")


def address(url: str) -> Markup:
    """A URL of a source: a link where a browser may follow it, else text."""
    url = printable(url)
    if not url.startswith(("http://", "https://")):
        return escape(url)
    return Markup('<a href="{0}" rel="noreferrer nofollow">{0}</a>').format(url)


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
