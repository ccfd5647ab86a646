"""One set as a target of push: where its records go, who may send them, and whom to tell that there are new ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from headwater.ingest.dit.intake import PATIENCE
from headwater.ingest.push.feed import Feed
from headwater.source.tokens import AccessTokens


class PushTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One set. `resource_sets` are its names in DIT documents, `news` is called when something was recorded."""

    feed: Feed
    tokens: AccessTokens
    resource_sets: frozenset[str] = frozenset()
    patience: dt.timedelta = PATIENCE
    news: Callable[[], None] = lambda: None
