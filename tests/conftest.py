"""Fixtures that any test may ask for, and what every test may rely on."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tools.engines.engine import Engine

from tests.support.examples import examples

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background ignores Ctrl-C for us and for all that we start; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.memory_folder", "tests.support.engines"]

LONG = 20
"""Seconds of a file that is marked as long and does not say more."""

settings.register_profile(
    "on any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(250)
)
settings.register_profile("the same each time", settings.get_profile("on any machine"), derandomize=True)
settings.load_profile("the same each time" if os.environ.get("HEADWATER_SAME_EXAMPLES") == "1" else "on any machine")


def pytest_collection(session: pytest.Session) -> None:
    """Have each worker of a whole run import a part of the files before all collect all of them.

    pytest compiles a file anew for its assertions, which costs more than the rest of collecting, and keeps what comes
    of it: so each file is compiled by one of the workers, and not by each. Where nothing is kept there is nothing won.
    """
    gc.disable()  # until all is there: nothing of it is garbage
    config = session.config
    told = getattr(config, "workerinput", None)
    if told is None or config.args != config.getini("testpaths"):
        return
    tests = Path(__file__).parent
    part = sorted(tests.rglob("test_*.py"))[int(told["workerid"][2:]) :: told["workercount"]]
    for path in (*tests.rglob("conftest.py"), *part):  # those first that say what else is compiled so
        with suppress(Exception):  # collecting says what is wrong with it
            importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Keep what is there by now, hundreds of thousands of objects, out of every collection of garbage to come."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in the order in which workers take them up (`--dist loadfile --no-loadscope-reorder`).

    Files whose tests take long come first, by the seconds that they say (`pytestmark = pytest.mark.long(40)`), then
    those with many tests: what takes longest must not run alone at the end. Files with tests on an engine alternate
    with others: while one worker waits for an engine, another one computes.
    """
    counts = Counter(item.path for item in items)
    seconds = {
        item.path: mark.args[0] if mark.args else LONG for item in items if (mark := item.get_closest_marker("long"))
    }
    engine = {item.path for item in items if getattr(getattr(item, "module", None), "Engine", None) is Engine}
    paths = sorted(counts, key=lambda path: (-seconds.get(path, 0), -counts[path]))
    on_engines, others = ([path for path in paths if (path in engine) is wanted] for wanted in (True, False))
    order = {path: n for n, path in enumerate(filter(None, chain(*zip_longest(on_engines, others))))}
    items.sort(key=lambda item: order[item.path])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that this one starts while the test runs."""
    made: list[subprocess.Popen[bytes]] = []

    class Process(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(subprocess, "Popen", Process)
    return made
