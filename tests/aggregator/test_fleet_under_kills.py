"""A service on sound, defective and hostile sources that change, while runs, template and service are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.fleet import trial

from tests.support.fleet_kinds import DEFECTIVE, HOSTILE

pytestmark = pytest.mark.long(seconds=40)
NAMES = ("good", "nohash", "clindex", "sitemap", "cut", "r503", "res404", "html200", "htmllist")


def test_every_copy_is_the_truth_or_says_why_not_and_the_sink_has_each_event_once(tmp_path: Path, capsys) -> None:
    kinds = {name: DEFECTIVE[name] for name in NAMES} | {name: HOSTILE[name] for name in ("hangs", "endless")}
    more = {"every": "2s", "deadline": "6s", "timeout": 2}
    faults = trial(0.2, tmp_path / "state", pause=2.0, kill_pause=1.0, kinds=kinds, **more)
    assert not faults, capsys.readouterr().out
