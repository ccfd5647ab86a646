"""What an audit calls behind, held back and wrong: a copy is judged by what its last run could know."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from headwater.sync.reports import SetAudit
from tests.support.copying import DONE, FAILED, FINDINGS, check, go, tree
from tests.support.fake_source import Site, Source

Said = pytest.CaptureFixture[str]


def counts(audited: SetAudit) -> dict[str, int]:
    names = ("same", "missing", "different", "extra", "behind", "held_back", "changed_during_audit")
    return {name: count for name in names if (count := getattr(audited, name))}


def audited(source: Source, dest: Path) -> SetAudit:
    (one,) = check(source.base, dest).sets
    return one


def test_what_changes_tell_after_the_last_run_is_behind(source: Source, site: Site, dest: Path) -> None:
    """Created, updated and deleted; also where a newer Resource List has it already. The next run brings it."""
    go(source.base, dest)
    site.put("f1.txt", b"another")
    site.put("new.txt", b"new")
    site.drop("f2.txt")
    site.publish_changes(10.0)
    for _ in range(2):
        one = audited(source, dest)
        assert (one.verdict, counts(one)) == ("in sync", {"same": 3, "behind": 3})
        assert one.reason == "3 changed at the source after the last run, and nothing else is wrong"
        site.publish_list()
    assert go(source.base, dest).status == DONE
    one = audited(source, dest)
    assert (one.verdict, one.reason, counts(one)) == ("in sync", None, {"same": 5})


def test_a_source_that_changes_again_and_again_hides_no_damage(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    site.put("f1.txt", b"another")
    site.publish_changes(10.0)
    (dest / "f3.txt").write_bytes(b"damaged")
    (dest / "f4.txt").unlink()
    (dest / "stray.txt").write_bytes(b"of nobody")
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == (
        "not in sync", {"same": 2, "missing": 1, "different": 1, "extra": 1, "behind": 1},
    )  # fmt: skip


def test_what_a_run_could_have_done_is_not_behind(source: Source, site: Site, dest: Path) -> None:
    """What failed was told before the position; what only the Resource List tells is in no change."""
    site.put("lost.txt", b"never sent")
    source.pages.pop("/set/resources/lost.txt")
    site.publish_changes(10.0)
    assert go(source.base, dest).status == FAILED
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == ("not in sync", {"same": 5, "missing": 1})
    del site.files["lost.txt"]
    site.put("f1.txt", b"listed alone", change=False)
    site.clock = 60.0
    site.publish_list()
    site.publish_changes(60.0)
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == ("not in sync", {"same": 4, "different": 1})


def test_a_change_list_that_does_not_read_on_puts_nothing_behind(source: Source, site: Site, dest: Path) -> None:
    """DST-C10: no run would follow it."""
    site.put("f1.txt", b"one")
    site.publish_changes(10.0)
    go(source.base, dest)
    site.changes = [(11.5, "updated", "f2.txt", b"a history of its own")]
    site.files["f2.txt"] = b"a history of its own"
    site.publish_changes(10.0)
    site.publish_list()
    one = audited(source, dest)
    assert (one.verdict, one.behind) == ("not in sync", 0)


def test_what_waits_for_consent_is_named_so(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    """It keeps the copy from being in sync; the command that lets it go is told in full by all who speak of it."""
    for number in range(5, 30):
        site.put(f"f{number}.txt", b"body %d\n" % number)
    site.publish()
    go(source.base, dest)
    for number in range(12):
        site.drop(f"f{number}.txt")
    site.publish_changes(0)
    assert run(["sync", source.base, str(dest)]) == FAILED
    command = f"headwater sync --max-delete 40% {source.base}/ {dest}"
    assert command in capsys.readouterr().err
    assert run(["status", str(dest)]) == FAILED
    told = capsys.readouterr().out
    assert command in told
    assert "12 files held back until you consent\n" in told
    assert run(["audit", source.base, str(dest)]) == FINDINGS
    told = capsys.readouterr().out
    assert "held back: f0.txt (deleted at the source; waits for consent)" in told
    assert command in told
    assert run(["audit", "--json", source.base, str(dest)]) == FINDINGS
    (one,) = json.loads(capsys.readouterr().out)["sets"]
    assert (one["held_back"], one["extra"], one["same"]) == (12, 0, 18)
    assert one["reason"] == "only deletions or updates wait for consent"
    assert run(command.split()[1:]) == DONE
    assert audited(source, dest).verdict == "in sync"


CHOICES = [
    (["--include", "*.txt"], "--include '*.txt'"),
    (
        ["--exclude", "a b", "--skip-host", "example.org", "--any-host"],
        "--exclude 'a b' --any-host --skip-host example.org",
    ),
    (["--prefer-type", "text/html"], "--prefer-type text/html"),
    (
        ["--include-type", "text/*", "--exclude-type", "text/xml", "--max-length", "900", "--since", "2001-01-01"],
        "--include-type 'text/*' --exclude-type text/xml --max-length 900 --since 2001-01-01T00:00:00Z",
    ),
    (["--exclude", "deep/*", "--with-metadata"], "--exclude 'deep/*' --with-metadata"),
]


@pytest.mark.parametrize(("options", "told"), CHOICES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_command_that_consents_keeps_the_filters(
    options: list[str], told: str, source: Source, site: Site, dest: Path, capsys: Said
) -> None:
    site.publish_list([site.resource(name, type="text/plain") for name in site.files])
    assert run(["sync", *options, source.base, str(dest)]) == DONE
    for name in list(site.files):
        site.drop(name)
    site.publish_changes(10.0)
    assert run(["sync", *options, source.base, str(dest)]) == FAILED
    command = f"headwater sync --max-delete 100% {told} {source.base}/ {dest}"
    assert f"held): {command} (with" in capsys.readouterr().err
    assert run(["status", str(dest)]) == FAILED
    assert f"by `{command}` (with" in capsys.readouterr().out
    assert run(["audit", source.base, str(dest)]) == FINDINGS
    assert f"by `{command}` (with" in capsys.readouterr().out
    assert run(shlex.split(command)[1:]) == DONE
    assert "filters differ" not in capsys.readouterr().err


OTHERS: list[tuple[dict[str, Any], str | None]] = [
    ({"exclude": ("*1.txt",)}, None),
    ({}, "(--exclude '*1.txt')"),
    ({"include": ("f*",)}, "(none)"),
]


def test_a_run_with_other_filters_says_so(source: Source, site: Site, dest: Path) -> None:
    """Also one that has none any more: it copies what the others left out."""
    for options, told in OTHERS:
        for is_first in (True, False):
            notes = [one.message for one in go(source.base, dest, **options).notices if "filters differ" in one.message]
            wanted = f"the filters differ from those of the last run {told}: all is compared again"
            assert notes == ([wanted] if told is not None and is_first else [])


def test_a_copy_without_a_position_is_not_behind(source: Source, site: Site, dest: Path) -> None:
    """Of a mirror by another tool nobody knows when it was made."""
    go(source.base, dest)
    shutil.rmtree(dest / ".headwater")
    site.put("f1.txt", b"another")
    site.publish_changes(10.0)
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == ("not in sync", {"same": 4, "different": 1})


def test_a_source_without_changes_has_nothing_behind(source: Source, site: Site, dest: Path) -> None:
    site.publish_capabilities("resourcelist")
    go(source.base, dest)
    site.put("f1.txt", b"another")
    site.publish_list()
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == ("not in sync", {"same": 4, "different": 1})
    assert tree(dest)["f1.txt"] == b"body 1\n"


def test_a_dry_run_sums_up_and_has_its_plan_on_request(source: Source, site: Site, dest: Path, capsys: Said) -> None:
    assert run(["sync", "--dry-run", source.base, str(dest)]) == DONE
    told = capsys.readouterr().out
    assert "set: would create 5, would fetch 35 B" in told
    assert "create f0.txt" not in told
    assert "-v shows each of them" in told
    assert run(["sync", "--dry-run", "-v", source.base, str(dest)]) == DONE
    assert capsys.readouterr().out.count("  create f") == 5
    assert not dest.exists()


def test_updates_that_wait_for_consent_are_named_so(source: Source, site: Site, dest: Path) -> None:
    go(source.base, dest)
    for name in site.files:
        site.put(name, b"")
    site.publish_changes(10.0)
    assert go(source.base, dest).status == FAILED
    one = audited(source, dest)
    assert (one.verdict, counts(one)) == ("not in sync", {"held_back": 5})
    assert go(source.base, dest, max_update=1).status == DONE
    assert audited(source, dest).verdict == "in sync"
