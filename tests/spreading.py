"""How the files of tests are spread over workers: some wait for engines while others compute, and no long one is last.

Only for `pytest -n N --dist loadfile`. Each file still runs as a whole, in one worker and in its order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ENGINE = "from tools.engines.engine import Engine"
"""What a file with tests on an engine contains: the type of the fixtures in `tests.engines`."""
LONGEST_FIRST = (
    "tests/catalog/test_cluster_nodes.py",
    "tests/catalog/test_cluster_faults.py",
    "tests/catalog/test_cluster_security.py",
    "tests/test_engines.py",
    "tests/test_manual.py",
    "tests/cli/test_catalog_documents.py",
    "tests/sync/test_commands.py",
    "tests/catalog/test_sqlite.py",
    "tests/source/test_source.py",
    "tests/source/test_dit_trial.py",
    "tests/source/test_shutdown.py",
    "tests/source/test_push_index.py",
    "tests/source/test_many_hosts.py",
    "tests/catalog/test_power_loss.py",
)
"""Few tests that take long: xdist puts what has few tests last."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Let one worker in two begin with the files that need an engine, and the others with those that need none."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Spreading(LoadFileScheduling):  # type: ignore[misc]
        def _assign_work_unit(self, node: Any) -> None:
            wants_engines = self.nodes.index(node) % 2 == 0
            for path in LONGEST_FIRST[::-1]:
                if path in self.workqueue:
                    self.workqueue.move_to_end(path, last=False)
            for path in self.workqueue:
                if needs_engine(config.rootpath / path) == wants_engines:
                    self.workqueue.move_to_end(path, last=False)
                    break
            super()._assign_work_unit(node)

    return Spreading(config, log)


def needs_engine(path: Path) -> bool:
    return ENGINE in path.read_text("utf-8")
