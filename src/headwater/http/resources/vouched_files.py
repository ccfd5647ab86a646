"""Files of which nothing is sent but the recorded octets: those of copies, which no scan looks at.

A file whose signature is not that of the catalog may be the recorded one all the same (a link was made, a mode was
changed): then its digest tells, which is computed once for each state of the file.
"""

from __future__ import annotations

import threading

from headwater.catalog.content import ContentChanged, recorded_blocks
from headwater.catalog.interface import Resource
from headwater.ingest.content import OpenFile

_KEPT = 4_096

State = tuple[int, int, int, int]


class VouchedFiles:
    """Verifies files of these sets, in several threads."""

    def __init__(self, sets: frozenset[str]) -> None:
        self.sets = sets
        self._lock = threading.Lock()
        self._verdicts: dict[tuple[str, str, str | None, State], bool] = {}

    def verify(self, set_name: str, resource: Resource, file: OpenFile) -> State | None:
        """The state of an open file if its octets are the recorded ones, by signature, else by digest; None if not."""
        if file.matches(resource.memo):
            return file.key
        stated = resource.metadata
        if stated.hash is None or stated.length != file.octets:
            return None
        key = set_name, resource.uri, stated.hash, file.key
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = _is_recorded(resource, file)
            with self._lock:
                if len(self._verdicts) >= _KEPT:  # whoever asks again has it computed again
                    self._verdicts.clear()
                self._verdicts[key] = verdict
        return file.key if verdict else None


def _is_recorded(resource: Resource, file: OpenFile) -> bool:
    try:
        for _block in recorded_blocks(file, resource.metadata):
            pass
    except (ContentChanged, OSError):
        return False
    return True
