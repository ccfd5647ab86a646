"""Asks an OAI-PMH repository, one request at a time: pages, refusals, and what it says of itself."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from headwater.errors import SourceFault, UsageFault
from headwater.ingest.harvested import NoAnswer
from headwater.ingest.oai.cursor import DAY, SECOND, Refused, RepositoryTimes
from headwater.ingest.oai.pages import PAGE_OCTETS, BadPage, OaiPage, read_page, time_of
from headwater.spec.uris import is_absolute
from headwater.transport.fetch import Fetch, Fetched, TransportOptions
from headwater.transport.transport import Transport
from headwater.version import __version__

_TOO_MUCH: Final = frozenset({400, 413, 422, 500, 504})  # HTTP statuses of a request that may ask for too much
_EXPIRED: Final = frozenset({400, 404, 410, 422, 500})  # and of a token that is not known any more
_BUSY: Final = frozenset({429, 503})
_EARLIEST: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class RefusedRequest(SourceFault):
    """The repository refuses a request."""

    kind = Refused.OTHER


class OaiRepository:
    """The repository with the base URL `url`, as `describe` has found it; `times` are those of the last answer.

    `deletions` are persistent, transient or no. Methods raise SourceFault. A `Retry-After` of up to
    `longest_wait_seconds` is waited for.
    """

    def __init__(
        self,
        url: str,
        *,
        stop: Callable[[], bool] = lambda: False,
        longest_wait_seconds: float = 60.0,
    ) -> None:
        if not url.startswith(("http://", "https://")) or not is_absolute(url):
            raise UsageFault("not the base URL of a repository", where=url[:200])
        self.url = url.partition("#")[0]
        self.requests = 0
        self.name, self.deletions = "", "no"
        self.times = RepositoryTimes(SECOND, _EARLIEST, _EARLIEST)
        self._transport = Transport(
            TransportOptions(
                concurrency=1,
                per_host=1,
                source=self.url,
                stopped=stop,
                longest_wait_seconds=longest_wait_seconds,
                user_agent=f"headwater/{__version__} (OAI-PMH harvester)",
            )
        )

    def close(self) -> None:
        """Give up the connection."""
        self._transport.close()

    def get(self, fetch: Fetch) -> Fetched:
        """The answer to one request."""
        self.requests += 1
        return self._transport.one(fetch)

    def ask(self, asked: Mapping[str, str], *, metadata_only: bool = False) -> OaiPage:
        """The answer to a request with these arguments. What is broken, or leads back to itself, is asked once more.

        Raises RefusedRequest, NoAnswer, BadPage.
        """
        uri, token = f"{self.url}{'&' if '?' in self.url else '?'}{urlencode(asked)}", asked.get("resumptionToken")
        for is_last in (False, True):
            answer = self.get(Fetch(uri, max_octets=PAGE_OCTETS))
            if answer.failure is not None or answer.status in _BUSY:
                what = answer.failure.text if answer.failure else f"HTTP status {answer.status}"
                fault = NoAnswer(f"no answer: {what}", code="HW-OAI-01", where=uri)
                fault.pause_seconds = answer.retry_after_seconds or 0.0
                raise fault
            try:
                page = read_page(answer.body, answer.headers, metadata_only=metadata_only)
            except BadPage as bad:
                if not answer.ok:
                    raise _refused_by_status(asked, answer.status, uri) from bad
                if is_last:
                    bad.where = uri
                    raise
                continue
            self.times = msgspec.structs.replace(self.times, now=page.responded_at or self.times.now)
            if page.error is not None and not page.records:
                raise _refused(asked, page, uri)
            if not answer.ok:
                raise _refused_by_status(asked, answer.status, uri)
            if is_last or token is None or page.token != token:
                return page
        raise AssertionError  # the last try returns or raises

    def describe(self, now: dt.datetime) -> None:
        """Ask what the repository says of itself. One that does not tell its time is taken for a day behind `now`."""
        self.times = RepositoryTimes(SECOND, _EARLIEST, now - DAY)
        said = self.ask({"verb": "Identify"}).values
        self.name, deletions = said.get("repositoryName", ""), said.get("deletedRecord", "").strip().lower()
        self.deletions = deletions if deletions in ("persistent", "transient") else "no"
        granule = SECOND if "T" in said.get("granularity", "") else DAY
        earliest = max(time_of(said.get("earliestDatestamp", "")) or _EARLIEST, _EARLIEST)
        self.times = RepositoryTimes(granule, earliest, self.times.now)


def _refused_by_status(asked: Mapping[str, str], status: int, uri: str) -> RefusedRequest:
    """What an HTTP status means."""
    advice = "Check the URL, and with a browser what the repository answers there. If that is right, tell its operator."
    refusal = RefusedRequest(f"HTTP status {status}", code="HW-OAI-01", where=uri, advice=advice)
    if status == 422 and "from" in asked:
        refusal.kind = Refused.EMPTY_OR_REQUEST
    elif status in (_EXPIRED if "resumptionToken" in asked else _TOO_MUCH):
        refusal.kind = Refused.REQUEST
    return refusal


def _refused(asked: Mapping[str, str], page: OaiPage, uri: str) -> RefusedRequest:
    """What an OAI-PMH error means."""
    code, text = page.error or ("", "")
    refusal = RefusedRequest(f"the repository answers {code}: {text[:300]!a}", code="HW-OAI-03", where=uri)
    if code == "noRecordsMatch":
        refusal.kind = Refused.EMPTY
    elif "resumptionToken" in asked:
        refusal.kind = Refused.TOKEN
    elif code == "badArgument" and "metadataPrefix" in asked:
        refusal.kind = Refused.REQUEST
    return refusal
