"""`headwater status CONFIG`: the table, JSON, figures, one source, the report for its operator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.aggregator.sqlite_store import SqliteStore
from headwater.cli import run
from headwater.cli.fleet import is_aggregation
from headwater.errors import Exit
from headwater.storage.lock import lock_exclusive
from tests.aggregator.fleet import HOSTILE, fill, store_at


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A service that follows 20 sources, and is not running."""
    return configured(tmp_path, store_at(tmp_path / "agg"), 20)


def configured(folder: Path, store: SqliteStore, count: int) -> Path:
    lines = [f'state = "{folder / "agg"}"', '[[sink]]\nname = "hook"\nkind = "webhook"\nurl = "https://x.example.org/"']
    for one in fill(store, count):
        lines += ["[[source]]", f'name = "{one.name}"', f'url = "{one.url}"', f"tags = {json.dumps(one.tags)}"]
    store.close()
    path = folder / "aggregate.toml"
    path.write_text("\n".join(lines), "utf-8")
    return path


def told(config: Path, *arguments: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = run(["status", str(config), *arguments])
    return status, capfd.readouterr().out


def test_the_table_has_the_worst_first(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = told(config, capfd=capfd)
    assert status == Exit.STORE, "no service runs"
    lines = text.splitlines()
    assert lines[0].startswith("no service runs with this configuration")
    assert lines[1].split("  ")[0].strip() == "source"
    names = [line.split()[0] for line in lines if line.startswith("source-")]
    assert names[:4] == ["source-0005", "source-0003", "source-0002", "source-0007"]
    assert "source-0010" not in names, "all is well there"
    assert any(line.startswith("1 waits for you, 1 dead, 1 failing, ") for line in lines)
    assert "1 source failed by HW-SRC-01, such as: 404 for the Capability List" in lines
    assert "\x1b" not in text
    assert any(line.startswith("sink hook: at event 10; 290 events behind") for line in lines)


def test_a_service_that_runs_is_seen_by_its_lock(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lock_exclusive(config.parent / "agg" / ".aggregator" / "lock")
    status, text = told(config, "--json", capfd=capfd)
    found = json.loads(text)
    assert found["is_alive"] is True
    assert (status, found["exit_status"]) == (Exit.SOURCE, Exit.SOURCE)
    assert len(found["sources"]) == 20
    assert found["counts"]["dead"] == 1


def test_one_source(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, text = told(config, "source-0005", capfd=capfd)
    assert status == Exit.TRANSFERS_FAILED
    assert text.startswith("source-0005: waits for you; proved in step ")
    assert "deletions held back: 880 of 1,000 files would be deleted" in text
    assert text.count("run ") >= 3
    assert HOSTILE not in text
    status, text = told(config, "source-0008", "--json", capfd=capfd)
    found: dict[str, Any] = json.loads(text)
    assert (status, found["source"]["verdict"]) == (Exit.TRANSFERS_FAILED, "degraded"), "an audit was not in sync"
    assert found["defects"][0]["rule"] == "RS-DOC-18"
    assert run(["status", str(config), "nobody"]) == Exit.USAGE


def test_the_report_of_a_source(config: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    assert told(config, "source-0008", "--report", str(file), capfd=capfd)[0] == Exit.DONE
    assert "Write times as in" in file.read_text("utf-8")
    assert run(["status", str(config), "--report", str(file)]) == Exit.USAGE
    assert run(["status", str(config), "nobody", "--report", str(file)]) == Exit.USAGE
    assert run(["status", str(tmp_path), "--report", str(file)]) == Exit.USAGE


def test_figures(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = told(config, "--metrics", capfd=capfd)[1]
    assert "headwater_service_up 0.0\n" in text
    assert "process_cpu_seconds_total" not in text, "it would be that of this command"


def test_options_of_copies_are_refused(config: Path) -> None:
    for options in (["--max-age", "1d"], ["--set", "x"], ["--records", "csv"]):
        assert run(["status", str(config), *options]) == Exit.USAGE


def test_what_is_the_configuration_of_a_service(tmp_path: Path, config: Path) -> None:
    other = tmp_path / "source.toml"
    other.write_text('state = "x"\nbase_url = "http://x/"\n[[set]]\nname = "a"\nfiles = "a"\n')
    broken = tmp_path / "broken.toml"
    broken.write_text("= 1")
    endless = tmp_path / "endless.toml"
    endless.write_text(f"state = {'1' * 5_000}")
    asked = (config, other, broken, endless, tmp_path / "none.toml", tmp_path)
    assert [is_aggregation(str(one)) for one in asked] == [True, False, False, False, False, False]


def test_a_service_that_never_ran_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('state = "agg"\n[[source]]\nname = "a"\nurl = "https://a.example.org/"\n')
    assert run(["status", str(tmp_path / "a.toml")]) == Exit.STORE, "no service runs"
