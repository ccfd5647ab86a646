"""`headwater serve --copy`: sets that the copy gets while it is served."""

from __future__ import annotations

from pathlib import Path

from tests.support.copying import DONE, go
from tests.support.fake_source import Site, Source
from tests.support.serving import Process, request
from tests.support.waiting import until


def test_a_set_that_the_copy_gets_later_appears_without_a_restart(tmp_path: Path) -> None:
    """All sets of DEST are published, at the same address by the same process; then a signal ends it as ever."""
    with Source() as origin:
        dest = tmp_path / "copy"
        for name in ("one", "two"):
            site = Site(origin, name)
            site.put("f.txt", name.encode())
            site.clock = 10.0
            site.publish(since=10.0)
        site.publish_description("one", "two")
        assert go(origin.base, dest).status == DONE
        with Process("--copy", str(dest), "--port", "0", "--state", str(tmp_path / "state")) as server:
            url = server.ready()
            third = Site(origin, "three")
            third.put("f.txt", b"three")
            third.clock = 10.0
            third.publish(since=10.0)
            third.publish_description("one", "two", "three")
            assert go(origin.base, dest).status == DONE
            until(
                lambda: (
                    request(url, "/three/resources/f.txt").body == b"three"
                    and b"/three/" in request(url, "/.well-known/resourcesync").body
                ),
                what="the new set",
            )
            assert server.process.poll() is None
            status, said = server.stop()
        assert status == DONE
        assert "HW-CPY-16" in said
