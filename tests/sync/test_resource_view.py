"""`headwater explore --resource`: one resource with all that belongs to it, in both directions (RS-REL)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.cli.explore import command
from tests.support.copying import go
from tests.support.fake_source import Reply, Site, Source, at, ln, sha, url

PAPER = b"a paper"


@pytest.fixture
def library(source: Source, site: Site) -> Site:
    paper = url(
        site.uri("paper"),
        at(0),
        ln("duplicate", "http://m.example/2", pri=2)
        + ln("duplicate", "http://m.example/1", pri=1)
        + ln("alternate", site.uri("paper.pdf"), type="application/pdf")
        + ln("describedby", site.uri("record"))
        + ln("timegate", "http://t.example/paper")
        + ln("http://x.example/rel", "http://x.example/\x7ey"),
        hash=sha(PAPER),
        length=len(PAPER),
    )
    record = url(site.uri("record"), links=ln("describes", site.uri("paper")))
    pdf = url(site.uri("paper.pdf"), links=ln("canonical", site.uri("paper")))
    source.pages["/set/resources/paper"] = Reply(PAPER)
    source.pages["/set/resources/record"] = source.pages["/set/resources/paper.pdf"] = Reply(b"more")
    site.publish_list([paper, record, pdf])
    site.publish_changes(10.0)
    return site


def view(where: str, uri: str, *options: str) -> Result:
    return CliRunner().invoke(command, ["--resource", uri, where, *options], standalone_mode=False)


def test_everything_that_belongs_to_it_is_shown(library: Site) -> None:
    """Mirrors by `pri`; links of others to it too."""
    ran = view(library.source.base, library.uri("paper"), "--json")
    assert ran.exit_code == 0, ran.output
    (found,) = json.loads(ran.stdout)["sets"]
    assert [link["href"] for link in found["links"][:2]] == ["http://m.example/1", "http://m.example/2"]
    rels = ["duplicate", "duplicate", "alternate", "describedby", "timegate", "http://x.example/rel"]
    assert [link["rel"] for link in found["links"]] == rels
    stated = {(link["rel"], link["stated_by"]) for link in found["stated_elsewhere"]}
    assert stated == {("describes", library.uri("record")), ("canonical", library.uri("paper.pdf"))}
    assert (found["length"], found["hash"]) == (len(PAPER), sha(PAPER))
    shown = view(library.source.base, library.uri("paper"))
    assert shown.stdout.index("mirror  http://m.example/1 (pri 1)") < shown.stdout.index("mirror  http://m.example/2")
    lines = shown.stdout.splitlines()
    assert [line[:6] for line in lines[1:]] == ["└─ set", *["   ├─ "] * 7, "   └─ "]
    assert f"described by (as that one states)  {library.uri('record')}" in shown.stdout
    assert library.source.requests("/set/resources/paper") == []


def test_of_a_copy_what_is_held_is_shown(library: Site, dest: Path) -> None:
    go(library.source.base, dest, mirrors="off")
    found = json.loads(view(str(dest), library.uri("paper"), "--json").stdout)
    assert [(file["path"], file["octets"], file["digest"]) for file in found["held"]] == [
        ("paper", len(PAPER), sha(PAPER))
    ]
    assert view(str(dest.parent), library.uri("paper")).exit_code != 0


def test_the_last_change_counts(library: Site) -> None:
    library.publish_changes(10.0, entries=[url(library.uri("paper"), change="deleted", datetime=at(20))])
    (found,) = json.loads(view(library.source.base, library.uri("paper"), "--json").stdout)["sets"]
    assert (found["change"], found["datetime"]) == ("deleted", at(20))


def test_records_that_describe_each_other_end(library: Site) -> None:
    """Links are shown, not followed: a loop costs nothing."""
    there, back = library.uri("a"), library.uri("b")
    entries = [url(there, links=ln("describedby", back)), url(back, links=ln("describedby", there))]
    library.publish_list(entries)
    (found,) = json.loads(view(library.source.base, there, "--json").stdout)["sets"]
    assert (found["links"][0]["href"], found["stated_elsewhere"][0]["stated_by"]) == (back, back)


def test_what_no_list_has(library: Site) -> None:
    ran = view(library.source.base, library.uri("none"))
    assert ran.return_value == 1
    assert "no list of the source has this resource" in ran.output
