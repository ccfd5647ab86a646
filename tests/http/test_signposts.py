"""What describes a resource, in its `Link` header as in the lists, and as a linkset where the header has no room."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headwater.http import resources
from headwater.http.responses import line
from headwater.publish.link_rules import DescribedRule, UrlRule
from tests.support.serving import Face
from tests.support.serving import face as serve
from tests.support.waiting import settle

PROFILE = "http://purl.org/dc/terms/"
RULES = (
    UrlRule(rel="license", href="https://licence.example/by"),
    UrlRule(rel="collection", href="https://data.example/{stem}", match=("*.pdf",), type="text/html"),
    UrlRule(rel="via", href="https://origin.example/{path}"),
)
PAIR = DescribedRule(content="{stem}.pdf", record="{stem}.xml", profile=PROFILE)


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    settle()
    return folder


def links(running: Face, target: str, method: str = "GET") -> list[tuple[str, str]]:
    """Relation and address of each link."""
    return [
        (rel, href) for href, rel in re.findall(r'<([^>]*)>; rel="([^"]*)"', " ".join(lines(running, target, method)))
    ]


def lines(running: Face, target: str, method: str = "GET") -> list[str]:
    """The lines of the header `Link`."""
    head = running.raw(f"{method} {target} HTTP/1.0\r\n\r\n".encode()).partition(b"\r\n\r\n")[0].decode()
    return [one.partition(": ")[2] for one in head.splitlines() if one.startswith("link: ")]


def test_what_describes_a_resource_stands_in_its_header(tmp_path: Path) -> None:
    """As in its entry, whatever relation it has there; and in no header of a resource that it does not describe."""
    files = put(tmp_path / "f", "a.pdf", "a.xml", "b.pdf")
    with serve(files, tmp_path / "state", links=RULES, described=(PAIR,), watch=False) as running:
        home = f"{running.url}/files/resources/"
        lists = ("resourcesync", f"{running.url}/files/capabilitylist.xml")
        licence = ("license", "https://licence.example/by")
        for method in ("GET", "HEAD"):
            assert links(running, "/files/resources/a.pdf", method) == [
                lists,
                licence,
                ("collection", "https://data.example/a"),
                ("describedby", f"{home}a.xml"),
            ]
        assert 'rel="collection"; type="text/html"' in lines(running, "/files/resources/a.pdf")[-1]
        described = ("describes", f"{home}a.pdf"), ("profile", PROFILE)
        assert links(running, "/files/resources/a.xml") == [lists, licence, *described]
        assert links(running, "/files/resources/b.pdf") == [lists, licence, ("collection", "https://data.example/b")]


def test_metadata_that_comes_later_is_in_the_header_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = put(tmp_path / "f", "a.pdf")
    with serve(files, tmp_path / "state", described=(PAIR,), watch=False) as running:
        lists = ("resourcesync", f"{running.url}/files/capabilitylist.xml")
        assert links(running, "/files/resources/a.pdf") == [lists]
        put(files, "a.xml")
        running.source.run_once()
        assert links(running, "/files/resources/a.pdf") == [lists]
        monkeypatch.setattr(resources, "LINKS_SECONDS", -1.0)
        describedby = ("describedby", f"{running.url}/files/resources/a.xml")
        assert links(running, "/files/resources/a.pdf") == [lists, describedby]


def test_links_that_have_no_room_are_in_the_linkset(tmp_path: Path) -> None:
    """RFC 9264; the header has the first ones, all of it no more than is allowed."""
    many = tuple(UrlRule(rel="item", href=f"https://parts.example/{n}/{'x' * 60}/{{path}}") for n in range(90))
    with serve(put(tmp_path / "f", "a b.pdf"), tmp_path / "state", links=(*RULES, *many), watch=False) as running:
        found = links(running, "/files/resources/a%20b.pdf")
        linkset = f"{running.url}/files/linkset/a%20b.pdf"
        assert found[-1] == ("linkset", linkset)
        assert 20 < len(found) < 60
        said = b"".join(line(b"link", one.encode()) for one in lines(running, "/files/resources/a%20b.pdf"))
        assert resources.LINK_OCTETS - 200 < len(said) <= resources.LINK_OCTETS
        told = running.get("/files/linkset/a%20b.pdf")
        assert (told.status, told.headers["content-type"]) == (200, "application/linkset+json")
        (context,) = json.loads(told.body)["linkset"]
        assert context["anchor"] == f"{running.url}/files/resources/a%20b.pdf"
        assert context["collection"] == [{"href": "https://data.example/a%20b", "type": "text/html"}]
        assert len(context["item"]) == len(many)
        assert context["via"] == [{"href": "https://origin.example/a%20b.pdf"}]
        assert running.get("/files/linkset/no.pdf").status == 404


def test_a_resource_without_links_has_an_empty_linkset_and_a_hidden_one_none(tmp_path: Path) -> None:
    files = put(tmp_path / "f", "a.txt", "secret.txt")
    with serve(files, tmp_path / "state", exclude=("secret*",), watch=False) as running:
        assert json.loads(running.get("/files/linkset/a.txt").body) == {"linkset": []}
        assert running.get("/files/linkset/secret.txt").status == 404


@pytest.mark.parametrize(
    ("href", "kind", "said"),
    [
        ("https://e.example/ä b", None, '<https://e.example/%C3%A4%20b>; rel="license"'),
        ('https://e.example/>"\r\nx: y', None, '<https://e.example/%3E%22%0D%0Ax:%20y>; rel="license"'),
        ("https://e.example/%20", "text/html", '<https://e.example/%20>; rel="license"; type="text/html"'),
        ("https://e.example/", 'a/b"\r\n', '<https://e.example/>; rel="license"'),
    ],
)
def test_no_link_ends_its_line(href: str, kind: str | None, said: str) -> None:
    """What records state comes from others."""
    assert resources.header_link(href, "license", kind) == said
