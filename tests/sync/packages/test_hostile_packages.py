"""Bad packages of `tests/packages` in a Resource Dump: what is placed is what is listed, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.errors import Exit
from tests.packages.bad_packages import BAD, BASE, GOOD
from tests.support.copying import IMPATIENT, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, sha, url
from tests.support.scripted_server import Request

pytestmark = pytest.mark.long

TOGETHER = 8
"""So many of them are tried by one test: starting one takes longer than it."""

NAMES = [name for name in BAD if not name.startswith("a name that") or name.endswith(("climbs", "absolute", "NUL"))]
"""Of the many names that are refused alike, three."""


class ProxiedSource(Source):
    """The site of `BASE`, for who asks for it through this server as a proxy."""

    @property
    def base(self) -> str:
        return BASE.rstrip("/")

    @property
    def proxy(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def respond(self, request: Request, connection: object) -> bytes | None:
        request.target = "/" + request.target.removeprefix(BASE)
        return super().respond(request, connection)  # type: ignore[arg-type]


@pytest.fixture
def site() -> Iterator[Site]:
    with ProxiedSource() as source:
        made = Site(source)
        made.publish_list([url(BASE + name, at(0), hash=sha(body), length=len(body)) for name, body in GOOD.items()])
        made.publish_capabilities("resourcelist", "resourcedump")
        made.publish_description()
        for name, body in GOOD.items():
            source.pages[f"/{name}"] = Reply(body)
        yield made


@pytest.mark.parametrize("process", [False, True], ids=["run", "process"])
@pytest.mark.parametrize(
    "names", [NAMES[start : start + TOGETHER] for start in range(0, len(NAMES), TOGETHER)], ids=str
)
def test_dst_p6_whatever_a_package_is_the_copy_is_what_is_listed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], process: bool
) -> None:
    monkeypatch.setattr("headwater.sync.packages.package_transfer.LEAST_PREFERRED_SHARE", 0.0)
    if process:
        monkeypatch.setattr("headwater.sync.packages.package_content.PROCESS_FROM", 1)
        monkeypatch.setattr("headwater.processes.pool.processors", lambda: 2)
    source = site.source
    assert isinstance(source, ProxiedSource)
    transport = msgspec.structs.replace(IMPATIENT, proxy=source.proxy)
    for number, name in enumerate(names):
        octets = BAD[name].make()
        source.pages["/set/p.zip"] = Reply(octets)
        entry = url(f"{site.root}/p.zip", length=len(octets), hash=sha(octets))
        site.serve("/set/resourcedump.xml", document([entry], links=site.up(), capability="resourcedump", at=at(1)))
        source.forget()
        dest = tmp_path / str(number) / "copy"
        ran = go(source.base, dest, transport, prefer="dumps")
        assert ran.status == Exit.DONE, (name, ran)
        assert "/set/p.zip" in [path for path, _ in source.log], name
        assert tree(dest) == GOOD, name
        assert sorted(path.name for path in dest.parent.iterdir()) == ["copy"], name
        assert not list((dest / ".headwater" / "tmp").iterdir()), name
