"""Links that rules add, in the manifests of packages of every kind."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

from headwater.publish.link_rules import LinkRules, UrlRule
from headwater.spec.records import ChangeKind
from tests.publish.change_history import ChangingCatalog
from tests.publish.packed_catalog import PackedCatalog
from tests.support.documents import read_bytes
from tests.support.serving import face, request

RULES = LinkRules(urls=(UrlRule(rel="duplicate", href="https://m.example/{path}", pri=1),))


def links(packages: Iterable[bytes]) -> dict[str, list[str]]:
    """Of each entry that is no deletion, by the last segment of its URI."""
    found = {}
    for octets in packages:
        with zipfile.ZipFile(io.BytesIO(octets)) as package:
            for entry in read_bytes(package.read("manifest.xml"))[1]:
                if entry.change is ChangeKind.DELETED:
                    assert entry.links == ()
                else:
                    found[entry.loc.rpartition("/")[2]] = [link.href for link in entry.links]
    return found


def wanted(*names: str) -> dict[str, list[str]]:
    return {name: [f"https://m.example/{name}"] for name in names}


def stored(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((folder / "documents").rglob("*.zip"))]


def test_a_resource_dump_has_them_and_is_packed_anew_for_other_rules(tmp_path: Path) -> None:
    """RS-RDM-05: what shapes documents shapes manifests."""
    world = PackedCatalog(tmp_path)
    world.load({"a": b"1", "b": b"2"})
    world.publish()
    world.pack()
    assert links(stored(tmp_path)) == {"a": [], "b": []}
    world.configure(links=RULES)
    world.publish()
    world.pack()
    assert wanted("a", "b") in [links([one]) for one in stored(tmp_path)]


def test_a_change_dump_has_them_but_for_deletions(tmp_path: Path) -> None:
    world = ChangingCatalog(tmp_path, links=RULES)
    world.begin(0)
    world.publish()
    world.change("a", b"1")
    world.change("b", b"2")
    world.change("a", None)
    world.publish()
    world.pack()
    assert links(stored(tmp_path)) == wanted("a", "b")


def test_a_package_on_demand_has_them(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a").write_text("1")
    with face(files, tmp_path / "state", mirrors=("https://m.example/{path}",), watch=False) as server:
        answer = request(server.url, "/files/dump", "POST", {"content-type": "application/json"}, b'{"page": 0}')
    assert links([answer.body]) == wanted("a")
