"""The process that forks runs: what it answers to orders that cannot be carried out, and to many at once."""

from __future__ import annotations

import threading
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


def test_it_takes_orders_while_nobody_hears_what_it_tells() -> None:
    with closing(TemplateProcess()) as template:

        def order() -> None:
            for number in range(600):
                template.send(number, order=b" " * 1_000)

        ordering = threading.Thread(target=order, daemon=True)
        ordering.start()
        ordering.join(40)
        assert not ordering.is_alive()
        found: dict[int, int] = {}
        ends = time.monotonic() + 20
        while len(found) < 600 and time.monotonic() < ends:
            found |= template.hear()
            time.sleep(0.01)
        assert found == dict.fromkeys(range(600), 70)
