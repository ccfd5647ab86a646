"""What a source wishes of those who poll it: `Retry-After` and `Cache-Control` of its documents (DST-C6)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.sync.network.fetch import Fetched
from headwater.sync.network.streaming import StreamedAnswer

_MOST_DOCUMENTS = 400_000  # a first run asks for a few of each of many sets


class Wishes:
    """Hears every document of one run, and says how long the source does not want to be asked again."""

    def __init__(self) -> None:
        self.retry_after_seconds: float | None = None
        self.max_age_seconds: float | None = None
        self._fresh: dict[str, float] = {}

    def hear(self, uri: str, answer: StreamedAnswer | Fetched) -> None:
        """Take note of one answer's head."""
        if answer.retry_after_seconds is not None:
            self.retry_after_seconds = max(self.retry_after_seconds or 0.0, answer.retry_after_seconds)
        if len(self._fresh) < _MOST_DOCUMENTS and answer.status in (200, 304):
            self._fresh[uri] = fresh_seconds(answer.headers.get("cache-control"), answer.headers.get("age"))

    def poll(self, uris: Iterable[str]) -> None:
        """Say which documents are polled: the one that goes stale first decides."""
        self.max_age_seconds = min((self._fresh.get(uri, 0.0) for uri in uris), default=0.0) or None


def fresh_seconds(cache_control: str | None, age: str | None) -> float:
    """How long an answer stays fresh by its `max-age`, less the time it has spent in caches; 0 when it does not say."""
    directives = [part.strip().lower().partition("=") for part in (cache_control or "").split(",")]
    names = {name for name, _, _ in directives}
    if names & {"no-cache", "no-store"}:
        return 0.0
    numbers = [value.strip('" ') for name, _, value in directives if name == "max-age"]
    if not numbers or not _is_number(numbers[0]):
        return 0.0
    spent = int(age.strip()[:9]) if age and _is_number(age.strip()) else 0
    return float(max(0, int(numbers[0][:9]) - spent))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
