"""The log of a server on standard error, as text or as lines of JSON: requests, events, notices, faults."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from typing import TYPE_CHECKING

import msgspec

from headwater import notices
from headwater.cli.face import printable
from headwater.errors import HeadwaterError
from headwater.progress import Notice, Progress

if TYPE_CHECKING:
    from headwater.server.app import Served
    from headwater.server.set_source import Publication


class Log:
    """Says what a server does. Every line goes through `logging`, so that a line is never torn between threads."""

    def __init__(self, logger: logging.Logger, *, as_json: bool) -> None:
        self._logger = logger
        self._as_json = as_json

    def served(self, request: Served) -> None:
        """One answered request."""
        if self._as_json:
            self._line("request", "", **msgspec.structs.asdict(request))
            return
        cut = "" if request.complete else " cut short"
        self._say(
            f'{request.client} "{request.method} {printable(request.target)}" {request.status} {request.octets} '
            f"{request.seconds * 1000:.1f}ms{cut}"
        )

    def event(self, event: str, text: str, **fields: object) -> None:
        """Something that happened to the server."""
        if self._as_json:
            self._line(event, text, **fields)
        else:
            self._say(printable(text))

    def published(self, news: Publication) -> None:
        """A set is there for the first time, or has changed."""
        changes = f"{news.changes:,} change{'s' if news.changes != 1 else ''}"
        resources = f"{news.resources:,} resource{'s' if news.resources != 1 else ''}"
        text = f"{news.name}: " + (f"{resources} published" if news.first else f"published {changes}")
        self.event("published", text, set=news.name, resources=news.resources, changes=news.changes, first=news.first)

    def progress(self, event: Progress | Notice) -> None:
        """What the source reports: notices; progress is for bars, not for logs."""
        if isinstance(event, Notice):
            where = f" ({event.where})" if event.where else ""
            self.event("notice", f"{event.message}{where} [{event.rule}]", rule=event.rule, where=event.where)

    def fault(self, fault: HeadwaterError | OSError) -> None:
        """Something that went wrong while a request was answered."""
        code = fault.code if isinstance(fault, HeadwaterError) else notices.REQUEST_FAULT
        self.event("fault", f"fault: {fault} [{code}]", code=code)

    def _say(self, text: str) -> None:
        self._logger.info("%s %s", _now(), text)

    def _line(self, event: str, text: str, **fields: object) -> None:
        head = {"time": _now(), "event": event} | ({"text": text} if text else {})
        self._logger.info("%s", msgspec.json.encode({**head, **fields}).decode())


def open_log(form: str) -> Log:
    """The log on standard error."""
    logger = logging.getLogger("headwater.server")
    logger.handlers = [logging.StreamHandler(sys.stderr)]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    # uvicorn's own lines say nothing that ours do not, and its tracebacks of cut connections alarm for nothing.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return Log(logger, as_json=form == "json")


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
