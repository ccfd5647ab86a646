"""A source that was set back, met by a run that compares with a Resource List from before, whatever the reason for it.

DST-C4, DST-F12, DST-B2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Site, Source, at, document, url

ANEW = pytest.mark.parametrize(
    "options", [{"baseline": True}, {"repair": True}, {"exclude": ("none",)}], ids=["baseline", "repair", "choice"]
)
INDEX = pytest.mark.parametrize("is_index", [False, True], ids=["a list", "an index"])


def publish(site: Site, *, is_index: bool) -> None:
    """The Change List, or an index of it, which stays what it is."""
    site.publish_changes(10)
    if is_index:
        site.serve("/set/open.xml", site.source.reply("/set/changelist.xml").body)
        part = url(f"{site.root}/open.xml", tag="sitemap", **{"from": at(10)})
        body = document([part], "sitemapindex", site.up(), capability="changelist", **{"from": at(10)})
        site.serve("/set/changelist.xml", body)


@pytest.fixture
def copied(is_index: bool, source: Source, site: Site, dest: Path) -> Path:
    """A copy that has done three changes, of which the source has forgotten two."""
    publish(site, is_index=is_index)
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"one")
    before = dict(site.files)
    site.put("f2.txt", b"two")
    site.put("f3.txt", b"three")
    publish(site, is_index=is_index)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    site.changes = site.changes[:-2]
    for name, body in before.items():
        site.put(name, body, change=False)
    publish(site, is_index=is_index)
    return dest


@ANEW
@INDEX
def test_an_older_list_settles_nothing(
    is_index: bool, options: dict[str, Any], source: Source, site: Site, copied: Path
) -> None:
    ran = go(source.base, copied, **options)
    assert ran.status == UNDETERMINED
    assert "DST-F12" in ran.rules()
    assert go(source.base, copied, **options).status == UNDETERMINED
    assert check(source.base, copied).verdict == "undetermined"
    site.publish_list()
    assert go(source.base, copied).status == DONE
    assert tree(copied) == dict(site.files)
    assert check(source.base, copied).verdict == "in sync"


@ANEW
@INDEX
def test_what_comes_after_is_done(
    is_index: bool, options: dict[str, Any], source: Source, site: Site, copied: Path
) -> None:
    """The list goes on being polled, although the index that names it is what it was."""
    assert go(source.base, copied, **options).status == UNDETERMINED
    site.put("f4.txt", b"four")
    publish(site, is_index=is_index)
    assert go(source.base, copied, **{name: value for name, value in options.items() if name == "exclude"}).status == 5
    assert tree(copied)["f4.txt"] == b"four"
    site.publish_list()
    assert go(source.base, copied).status == DONE
    assert tree(copied) == dict(site.files)


@ANEW
@INDEX
def test_a_doubt_outlasts_another_baseline(
    is_index: bool, options: dict[str, Any], source: Source, site: Site, copied: Path
) -> None:
    """Until a newer Resource List is applied every run ends so."""
    assert go(source.base, copied).status == UNDETERMINED
    site.put("f4.txt", b"four")
    publish(site, is_index=is_index)
    assert go(source.base, copied).status == UNDETERMINED
    assert go(source.base, copied, **options).status == UNDETERMINED


@ANEW
@INDEX
def test_an_old_answer_of_a_cache(
    is_index: bool, options: dict[str, Any], source: Source, site: Site, dest: Path
) -> None:
    """The list that states all again settles the doubt."""
    publish(site, is_index=is_index)
    go(source.base, dest)
    site.put("f1.txt", b"one")
    publish(site, is_index=is_index)
    assert go(source.base, dest).status == DONE
    told, site.changes = site.changes, site.changes[:-1]
    publish(site, is_index=is_index)
    assert go(source.base, dest, **options).status == UNDETERMINED
    site.changes = told
    publish(site, is_index=is_index)
    assert go(source.base, dest, **options).status == DONE
    assert check(source.base, dest).verdict == "in sync"
