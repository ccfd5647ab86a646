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


def test_a_set_that_cannot_be_published_keeps_no_later_one_out(tmp_path: Path) -> None:
    """One with the name of the base URL's first segment is refused; those that come after it are taken in."""
    with Source() as origin:
        dest = tmp_path / "copy"
        names: list[str] = []

        def copied(name: str) -> None:
            names.append(name)
            site = Site(origin, name)
            site.put("f.txt", name.encode())
            site.clock = 10.0
            site.publish(since=10.0)
            site.publish_description(*names)
            assert go(origin.base, dest).status == DONE

        copied("one")
        copied("two")
        place = ("--port", "0", "--base-url", "http://mirror.example/three", "--state", str(tmp_path / "state"))
        with Process("--copy", str(dest), "--quiet", *place) as server:
            server.listening()
            for name in ("three", "four"):
                copied(name)
            until(
                lambda: request(server.address, "/three/four/resources/f.txt").body == b"four",
                what="the set after the one that is refused",
            )
            assert request(server.address, "/three/one/resources/f.txt").body == b"one"
            assert request(server.address, "/three/three/resources/f.txt").status == 404
            assert server.process.poll() is None
