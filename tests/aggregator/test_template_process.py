"""The process that forks runs: what it answers to orders that cannot be carried out."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from headwater.aggregator.template_process import TemplateProcess


@pytest.mark.parametrize("order", [b"{}", b'{"run": 1}', b"null", b'"\\ud800"'])
def test_an_order_that_cannot_be_read_ends_its_run_alone(order: bytes) -> None:
    with closing(TemplateProcess()) as template:
        template.send(7, order=order)
        template.send(8, order=b"{}")
        found: dict[int, int] = {}
        ends = time.monotonic() + 20
        while len(found) < 2 and time.monotonic() < ends:
            found |= template.hear()
            time.sleep(0.01)
        assert found == {7: 70, 8: 70}
        assert not template.has_ended
