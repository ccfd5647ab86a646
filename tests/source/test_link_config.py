"""Rules for links in the configuration: each example of the page is read, and what is wrong is told with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.errors import UsageFault
from headwater.publish.link_rules import DescribedRule, LinkRules, UrlRule
from headwater.source.config import SourceConfig, read_config
from headwater.source.configured_source import open_catalog

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "link-resources.md"


def config_of(folder: Path, set_lines: str) -> SourceConfig:
    text = 'state = "state"\n' + (
        set_lines if set_lines.startswith("[[set]]\n") else f"[[set]]\nfiles = 'f'\n{set_lines}"
    )
    path = folder / "source.toml"
    path.write_text(text)
    return read_config(path)


def test_each_example_of_the_page_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(\[\[set\]\].*?)```", PAGE.read_text(), re.DOTALL)
    rules = [config_of(tmp_path, block).sets[0].settings().links for block in blocks]
    assert [number for number, one in enumerate(rules) if one == LinkRules()] == [5]  # media types
    assert rules[2].urls == (
        UrlRule(rel="duplicate", href="https://mirror.example/data/{path}", pri=1),
        UrlRule(rel="duplicate", href="https://mirror.example.org/{path}", pri=2),
    )
    assert rules[0].described[0] == DescribedRule(
        content="{stem}.pdf", record="{stem}.xml", profile="http://purl.org/dc/terms/"
    )


def test_pages_of_a_set_with_rules_are_cut_earlier(tmp_path: Path) -> None:
    """RS-LIM-01: its documents have room for what is added to them; those of others stay as they are."""
    config = config_of(
        tmp_path,
        "mirrors = ['https://m.example/{path}']\n[[set]]\nname = 'b'\nfiles = 'b'\n"
        "[[set]]\nname = 'c'\nfiles = 'c'\npatch = ['json']",
    )
    (tmp_path / "state").mkdir()
    catalog = open_catalog(config)
    assert catalog.limits.of("files").page_octets < catalog.limits.page_octets == catalog.limits.of("b").page_octets
    assert catalog.limits.of("c").segment_octets < catalog.limits.of("b").segment_octets  # for patches, in them alone
    assert catalog.limits.of("c").page_octets == catalog.limits.of("b").page_octets
    catalog.close()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("mirrors = ['/mirror/{path}']", "no absolute URL"),
        ("mirrors = ['//mirror.example/{path}']", "no absolute URL"),
        ("mirrors = ['gopher://m.example/{path}']", "scheme gopher"),
        ("mirrors = ['file:///srv/{path}']", "scheme file"),
        ("mirrors = ['https://m.example/{id}']", "other braces"),
        ("[[set.links]]\nrel = 'duplicate'\nhref = 'http://m/'\npri = 0", "pri is not within 1 to 999999"),
        ("[[set.links]]\nrel = 'duplicate'\nhref = 'http://m/'\npri = 1000000", "pri is not within 1 to 999999"),
        ("[[set.links]]\nrel = 'duplicate'\nhref = 'http://m/'\npri = 'high'", "pri"),
        ("mirrors = ['http://m/']\n[[set.links]]\nrel = 'duplicate'\nhref = 'http://n/'\npri = 1", "have pri 1"),
        ("[[set.links]]\nrel = 'via'\nhref = 'http://m/'\nmatch = ['a//b']", "not a pattern"),
        ("[[set.links]]\nrel = 'via'\nhref = 'http://m/'\nprio = 1", "unknown"),
        ("[[set.links]]\nhref = 'http://m/'", "rel"),
        ("[[set.links]]\nrel = 'collectoin'\nhref = 'http://m/'", "did you mean collection?"),
        ("[[set.links]]\nrel = 'Via'\nhref = 'http://m/'", "did you mean via?"),
        ("[[set.links]]\nrel = 'x-zz'\nhref = 'http://m/'", "no registered relation"),
        ("[[set.described]]\ncontent = '{stem}*.pdf'\nrecord = '{stem}.xml'", "behind {stem}/"),
        ("[[set.described]]\ncontent = '*/{stem}.pdf'\nrecord = '{stem}.xml'", "behind {stem}/"),
        ("[[set.described]]\ncontent = '{stem}/*/*.pdf'\nrecord = '{stem}.xml'", "stands once"),
        ("[[set.described]]\ncontent = '{stem}.pdf'\nrecord = '{stem}/*.xml'", "in content"),
        ("variants = ['html']", "one suffix alone"),
        ("[[set.described]]\ncontent = 'a.pdf'\nrecord = '{stem}.xml'", "no path with one {stem}"),
    ],
)
def test_bad_rules_are_told_with_their_place(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(UsageFault) as refused:
        config_of(tmp_path, lines)
    assert said in refused.value.what
    assert "[[set]] 1" in str(refused.value.where)
    assert refused.value.code in ("HW-CFG-01", "HW-CFG-05")


def test_relations_of_the_registry_and_uris_are_taken(tmp_path: Path) -> None:
    rules = "".join(
        f"[[set.links]]\nrel = '{rel}'\nhref = 'http://m/'\n"
        for rel in ("license", "cite-as", "latest-version", "http://example.org/terms/own", "urn:own")
    )
    assert len(config_of(tmp_path, rules).sets[0].links) == 5
