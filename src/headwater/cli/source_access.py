"""Options of all commands that access a source: credentials, CA certificates, proxy, concurrency, rate, timeout."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from headwater.cli.shared_options import FILE, Duration, WholeSeconds, option, options
from headwater.errors import UsageFault

Command = TypeVar("Command", bound=Callable[..., Any])

PASSWORD = "HEADWATER_PASSWORD"  # noqa: S105  the name of a variable
_MOST_HEADER_OCTETS = 1 << 16

_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgt")}
_RATE = r"(\d+(?:\.\d+)?|\.\d+)\s*(?:([bkmgt])i?(?:b)?)?(?:/s|ps)?"


class Bandwidth(click.ParamType[int]):
    """A bandwidth in octets a second, as in rclone and rsync: units of 1,024, a number alone is KiB; `off`: none."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:  # type: ignore[override]
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text.lower() in ("off", "0"):
            return None
        found = re.fullmatch(_RATE, text, re.IGNORECASE | re.ASCII)
        rate = float(found[1]) * _UNITS[(found[2] or "k").lower()] if found else 0.0
        if not 1 <= rate < 1 << 50:
            self.fail(f"{text!r} is no rate: give 2M, 500k or 1.5G, which is octets a second, or off", param, ctx)
        return int(rate)


ca_option = option("--ca FILE", "Also trust these CA certificates (PEM).", FILE)
proxy_option = option("--proxy URL", "Send all requests by this proxy.  [default: HTTPS_PROXY, http_proxy, NO_PROXY]")
_ASKING = (
    option(
        "--token TOKEN",
        "A bearer token for URL's origin only; better by HEADWATER_TOKEN, which `ps` does not show.",
        envvar="HEADWATER_TOKEN",
    ),
    option(
        "--user NAME[:PASSWORD]",
        "For URL's origin only (Basic); better by HEADWATER_PASSWORD or ~/.netrc.",
        envvar="HEADWATER_USER",
    ),
    option(
        "--header 'NAME: VALUE'",
        "A header for URL's origin only, or @FILE with one a line (may be repeated).",
        name="headers",
        multiple=True,
    ),
    option("--cert FILE", "A client certificate (PEM), shown to URL's origin only.", FILE),
    option("--key FILE", "Its key, if that is not in the same file.", FILE),
    ca_option,
    proxy_option,
)
_PACE = (
    option("--concurrency N", "Requests in flight.", click.IntRange(1, 256), default=64, show_default=True),
    option("--rate N", "At most N requests a second.", click.FloatRange(min=0, min_open=True)),
    option(
        "--bwlimit RATE", "Octets a second of all transfers together: 2M, 500k; a number alone is KiB.", Bandwidth()
    ),
    option(
        "--timeout SECONDS",
        "A request fails after so long without data.",
        WholeSeconds(1),
        name="stall_seconds",
        default=30,
        show_default=True,
    ),
    option(
        "--deadline TIME",
        "End after so long (2h, 90min) with status 3; a later run goes on.",
        Duration(0.1),
        name="deadline_seconds",
    ),
)

ACCESS_HEADINGS: Final = {"concurrency": "Requests", "token": "Access to the source"}
"""Where the sections of these options begin in the help of a command."""


source_options = options(*_PACE, *_ASKING)
"""Access to a source; `given_options` picks those that were given."""


def given_options(wanted: dict[str, Any]) -> dict[str, Any]:
    """Fields of `Options` for what a command was given: all of it, but for what was left away."""
    given = {name: value for name, value in wanted.items() if value is not None}
    token, user = _one_of(given.pop("token", None), given.pop("user", None))
    if token:
        given["authorization"] = f"Bearer {token}"
    if user:
        given["user"], given["password"] = _signing_in(user)
    given["headers"] = tuple(field for text in given.get("headers", ()) for field in _fields(text))
    return given


def _one_of(token: str | None, user: str | None) -> tuple[str | None, str | None]:
    """A token or a user: what stands in the command counts before what stands in the environment."""
    if not token or not user:
        return token, user
    context = click.get_current_context()
    spoken = [name for name in ("token", "user") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if len(spoken) != 1:
        raise click.UsageError("--token (HEADWATER_TOKEN) and --user (HEADWATER_USER) exclude each other")
    return (token, None) if spoken == ["token"] else (None, user)


def _signing_in(user: str) -> tuple[str, str]:
    name, colon, password = user.partition(":")
    if colon:
        return name, password
    if (kept := os.environ.get(PASSWORD)) is not None:
        return name, kept
    if sys.stdin.isatty() and sys.stderr.isatty():
        return name, click.prompt(f"Password of {name}", hide_input=True, err=True)
    raise click.UsageError(f"--user is without a password: {PASSWORD} may have it, or ~/.netrc both")


def _fields(text: str) -> list[tuple[str, str]]:
    if not text.startswith("@"):
        return [_field(text)]
    try:
        with open(text[1:], encoding="latin-1") as file:
            lines = file.read(_MOST_HEADER_OCTETS).splitlines()
    except OSError as cause:
        raise UsageFault(f"the file of headers cannot be read: {cause.strerror}", where=text[1:]) from cause
    return [_field(line) for line in lines if line.strip()]


def _field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header is 'NAME: VALUE', or @FILE with one on each line")
    return name.strip(), value.strip()
