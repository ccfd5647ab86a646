"""Files of tests need not come to rest: what they hold is known."""

from __future__ import annotations

import pytest

from headwater.source import published_dataset as intake


@pytest.fixture(autouse=True)
def _at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "SETTLED_SECONDS", -1.0)
