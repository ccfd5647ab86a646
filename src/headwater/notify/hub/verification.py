"""Verifies the intent of subscribers, or tells them that a subscription is denied (WS-H-06 to WS-H-10)."""

import hmac
import random
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

import msgspec

from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpFailure
from headwater.notify.hub.queues import FairQueue, HubContext, HubDriver
from headwater.notify.hub.store import DueSubscription, Intent
from headwater.notify.websub import monotonic_unix_time
from headwater.retry import Backoff
from headwater.spec import uris

SECONDS: Final = 5.0  # a callback answers in so long
_ANSWER_OCTETS: Final = 4_096
_BOUNDS: Final = AnswerBounds(seconds=SECONDS, max_octets=_ANSWER_OCTETS)
_SLOTS, _HOST_SLOTS = 512, 32
_PAUSE: Final = Backoff(0.6, 3.0)
_TRIES: Final = 4
"""So often a callback that does not answer at all is asked for its intent; then the request has failed."""


def verification_url(callback: str, *, mode: str, topic: str, challenge: str, lease_seconds: int | None) -> str:
    """Where intent is verified: the callback's own query is kept, and what is asked is appended (WS-H-05, WS-H-07)."""
    asked = {"hub.mode": mode, "hub.topic": topic, "hub.challenge": challenge}
    if lease_seconds is not None:
        asked["hub.lease_seconds"] = str(lease_seconds)
    return _appended(callback, asked)


def denial_url(callback: str, *, topic: str, reason: str) -> str:
    """Where a subscriber is told that the subscription is denied (WS-H-06)."""
    return _appended(callback, {"hub.mode": "denied", "hub.topic": topic, "hub.reason": reason})


def _appended(callback: str, asked: dict[str, str]) -> str:
    joint = "" if callback.endswith(("?", "&")) else "&" if "?" in callback else "?"
    return f"{callback}{joint}{urlencode(asked)}"


def is_confirmed(answer: HttpAnswer, challenge: str) -> bool:
    """Whether an answer confirms the intent: a 2xx whose body is the challenge (WS-H-08)."""
    return answer.ok and hmac.compare_digest(answer.body, challenge.encode("ascii"))


def may_try_again(answer: HttpAnswer | HttpFailure, tries: int) -> bool:
    """Whether a callback that has not confirmed after so many tries is asked again: it has not answered at all."""
    is_silent = not answer.is_final if isinstance(answer, HttpFailure) else answer.status >= 500
    return is_silent and tries < _TRIES


class Verifications(HubDriver[Intent]):
    """Asks callbacks, many at a time, hosts in turns. `on_settled` is told what a confirmed intent has come to."""

    def __init__(self, context: HubContext, on_settled: Callable[[DueSubscription | Intent | int], None]) -> None:
        super().__init__(context, FairQueue(_SLOTS, _HOST_SLOTS))
        self._on_settled = on_settled
        self._latest: dict[tuple[str, str], int] = {}
        self.counts = {"confirmed": 0, "failed": 0, "denied": 0}  # what came of them so far

    @property
    def pending(self) -> int:
        """How many intents are not verified."""
        return len(self._latest)

    def pending_of(self, host: str) -> int:
        """How many wait that have callbacks at a host."""
        return self._queues[0].waiting(host)

    def add(self, intent: Intent) -> None:
        """Verify an intent; one of the same topic and callback that waits is passed over."""
        self._latest[_pair(intent)] = intent.id
        if intent.tries:  # what is stored may be of a clock that has been set back since
            due_at = min(intent.due_at, monotonic_unix_time() + _PAUSE.seconds(intent.tries, 1.0))
        else:
            due_at = 0.0
        self._enqueue(msgspec.structs.replace(intent, due_at=due_at))

    def _is_current(self, intent: Intent) -> bool:
        return self._latest.get(_pair(intent)) == intent.id

    async def _work(self, intent: Intent) -> Intent | None:
        denial = intent.denial
        if denial is None and not intent.is_unsubscribe:
            objections = await self._context.client.objections_to([intent.topic], intent.asker)
            if (objection := objections.get(intent.topic)) is not None:
                self._context.on_topic_fault(intent.topic, objection.text)
                denial = objection.public_text
        asked_at, challenge = monotonic_unix_time(), secrets.token_urlsafe(32)
        if denial is not None:
            url, bounds = denial_url(intent.callback, topic=intent.topic, reason=denial), AnswerBounds(seconds=SECONDS)
        else:
            mode, lease = ("unsubscribe", None) if intent.is_unsubscribe else ("subscribe", intent.lease_seconds)
            asked = {"mode": mode, "topic": intent.topic, "challenge": challenge}
            url, bounds = verification_url(intent.callback, **asked, lease_seconds=lease), _BOUNDS
        answer = await self._context.client.request("GET", url, bounds, asker=intent.asker)
        is_right = isinstance(answer, HttpAnswer) and (answer.ok if denial else is_confirmed(answer, challenge))
        if not is_right and may_try_again(answer, intent.tries + 1):
            tries = intent.tries + 1
            due_at = monotonic_unix_time() + _PAUSE.seconds(tries, random.random())
            later = msgspec.structs.replace(intent, tries=tries, due_at=due_at)
            await self._context.writer.write(lambda tx: self._context.store.put_off(tx, later))
            return later
        takes_effect = is_right and not denial
        found = await self._context.writer.write(
            lambda tx: self._context.store.settle(tx, intent, is_confirmed=takes_effect, asked_at=asked_at)
        )
        if not isinstance(found, Intent):  # which is one that is denied now
            self.counts["denied" if denial else "confirmed" if is_right else "failed"] += 1
        if self._is_current(intent):
            del self._latest[_pair(intent)]
        if found is not None:
            self._on_settled(found)
        return None


def _pair(intent: Intent) -> tuple[str, str]:
    return uris.normalise(intent.topic), uris.normalise(intent.callback)
