"""One node of each engine for all workers of a run: the process that started them starts it when one first asks.

A start costs ten seconds of a processor; tests use index names of their own anyway (docs/engines.md). Without workers
there is nobody to ask, and `tests.engines` starts its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Client, Listener
from typing import Any

import pytest
from tools.engines.engine import Engine
from tools.engines.errors import EngineFailed, Unavailable

ADDRESS = "engines"
"""Under this name a worker is told where to ask."""
KEPT = pytest.StashKey["Engines"]()


class Engines:
    """The engines of a run, and a thread that tells workers the port of each."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._ports: dict[str, int] = {}
        self._listener = Listener(family="AF_UNIX")
        self.address = str(self._listener.address)
        self._thread = threading.Thread(target=self._answer, name="engines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the engines; call it when no worker is left to ask."""
        ask(self.address, "")
        self._thread.join()
        self._listener.close()
        self._running.close()

    def _answer(self) -> None:
        name = "-"
        while name:
            with self._listener.accept() as asker:
                try:
                    name = asker.recv()
                    asker.send(self._port(name) if name else 0)
                except (EngineFailed, Unavailable) as error:
                    asker.send(str(error))
                except (EOFError, OSError):
                    continue  # the worker was killed

    def _port(self, name: str) -> int:
        if name not in self._ports:
            self._ports[name] = self._running.enter_context(Engine(name)).port
        return self._ports[name]


def ask(address: str, name: str) -> int:
    """The port of an engine, which runs; raises EngineFailed when it does not."""
    with Client(address) as connection:
        connection.send(name)
        answer = connection.recv()
    if isinstance(answer, str):
        raise EngineFailed(answer)
    return int(answer)


@contextmanager
def shared(name: str, config: pytest.Config) -> Iterator[Engine]:
    """The engine of this run; for tests that leave it running."""
    address = getattr(config, "workerinput", {}).get(ADDRESS)
    with Engine(name) if address is None else Engine(name, port=ask(address, name), start=False) as engine:
        yield engine


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called where the workers are started, before each of them is."""
    engines = node.config.stash.setdefault(KEPT, None) or Engines()
    node.config.stash[KEPT] = engines
    node.workerinput[ADDRESS] = engines.address


def pytest_unconfigure(config: pytest.Config) -> None:
    engines = config.stash.get(KEPT, None)
    if engines is not None:
        engines.close()
