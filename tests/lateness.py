"""Says at the end which bars of time were missed and forgiven (`tests.bars`): drift is seen before it is a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import bars

FORGIVEN = "forgiven"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Send what was forgiven during the test along with its report: it may have run in another process."""
    if call.when == "call":
        item.user_properties += [(FORGIVEN, text) for text in bars.forgiven()]
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, [])]
    late = [(one.nodeid, text) for one in reports for name, text in one.user_properties if name == FORGIVEN]
    if late:
        terminalreporter.section(f"{len(late)} bars were missed and forgiven")
        for test, text in late:
            terminalreporter.write_line(f"{test}: {text}")
