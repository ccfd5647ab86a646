"""What a test says of an error that has no class of its own: its code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.errors import HeadwaterError


@contextmanager
def failing(code: str, *, match: str = "") -> Iterator[pytest.ExceptionInfo[HeadwaterError]]:
    """As `pytest.raises`, of an error with this code, whose text may have to `match`."""
    with pytest.raises(HeadwaterError) as raised:
        yield raised
    assert raised.value.code == code
    assert re.search(match, str(raised.value)), raised.value
