"""A subscriber that is killed between its acknowledgement and what it has acknowledged loses nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.notify.following.pushing import Hub, PushedSite, polls, text
from tests.support.fake_source import Handler, Reply
from tests.support.waiting import until

pytestmark = pytest.mark.long(8)


@contextmanager
def process(site: PushedSite, dest: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`headwater sync --follow --push` as a process, with push at work."""
    command = [sys.executable, "-m", "headwater", "sync", "--follow", "60", "--push", site.source.base, str(dest)]
    with (
        log.open("wb") as file,
        subprocess.Popen([*command, "--json"], stdout=subprocess.DEVNULL, stderr=file) as running,
    ):
        try:
            until(lambda: "push is at work" in log.read_text())
            yield running
        finally:
            running.kill()


def test_a_kill_between_the_acknowledgement_and_the_application_loses_nothing(
    site: PushedSite, hub: Hub, dest: Path, tmp_path: Path
) -> None:
    asked, killed = threading.Event(), threading.Event()

    def slow(_handler: Handler) -> Reply:
        asked.set()
        killed.wait(60)
        return Reply(b"late")

    with process(site, dest, tmp_path / "first") as first:
        site.put("new.txt", b"new")
        good, site.source.pages["/set/resources/new.txt"] = site.source.pages["/set/resources/new.txt"], slow
        assert hub.deliver(site.topic(), site.notification()) == 202
        assert asked.wait(60)
        first.kill()
        first.wait(60)
    assert not (dest / "new.txt").exists()
    site.source.pages["/set/resources/new.txt"] = good
    killed.set()
    before = len(hub.asked)
    with process(site, dest, tmp_path / "second"):
        until(lambda: text(dest / "new.txt") == "new")  # the Change List is as stale as it was
        site.put("more.txt", b"more")
        assert hub.deliver(site.topic(), site.notification()) == 202
        until(lambda: text(dest / "more.txt") == "more")
    assert len(hub.asked) == before  # the lease goes on
    assert polls(site)
