"""The base of a set's names: the folder that all listed URIs have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.copy_state import SCHEMA
from headwater.storage.database import Database
from headwater.sync.state import TEMPORARY
from headwater.sync.update.path_conflicts import first_base

CAPABILITIES = "https://a.example/set/capabilitylist.xml"
SERVED = "https://a.example/set/resources/"

ORIGINS = st.sampled_from(["https://a.example", "https://b.example", "http://a.example"])
PATHS = st.lists(st.sampled_from(["set", "resources", "a", "a.b", "ab", "é", "%C3%A9", "?", "#", "?a/b"]), max_size=5)
URIS = st.builds(lambda origin, parts: f"{origin}/{'/'.join(parts)}", ORIGINS, PATHS)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("state") / "state.sqlite"
    with Database(path, SCHEMA) as made:
        with made.write() as t:
            t.run(TEMPORARY)
        yield made


def base_of(database: Database, uris: list[str]) -> str | None:
    with database.write() as t:
        t.run("DELETE FROM temp.listed")
        t.many("INSERT INTO temp.listed(uri, refused) VALUES (?, 0)", ((uri,) for uri in uris))
        t.run("INSERT INTO temp.listed(uri, refused) VALUES ('https://refused.example/', 1)")
        return first_base(t, "listed", CAPABILITIES)


@pytest.mark.parametrize(
    ("uris", "base"),
    [
        ([], None),
        (["https://a.example/x/y"], "https://a.example/x/"),
        (["https://a.example/x/y", "https://a.example/x/z/1"], "https://a.example/x/"),
        (["https://a.example/ab/1", "https://a.example/a/1"], "https://a.example/"),
        (["https://a.example/x/1", "https://b.example/x/1"], ""),
        (["https://a.example/set/resources/d/1", "https://a.example/set/resources/d/2"],
         "https://a.example/set/resources/"),
        (["https://a.example/get?x/1", "https://a.example/get?x/2"], "https://a.example/"),
    ],
)  # fmt: skip
def test_it_is_the_folder_that_all_have_in_common(database: Database, uris: list[str], base: str | None) -> None:
    assert base_of(database, uris) == base


@given(uris=st.lists(URIS, max_size=6))
def test_the_first_and_the_last_tell_what_all_have_in_common(database: Database, uris: list[str]) -> None:
    assert base_of(database, uris) == one_by_one(uris)


def one_by_one(uris: list[str]) -> str | None:
    """The folder that all of them have in common, looking at each: a slash behind `?` or `#` ends no folder."""
    if not uris:
        return None
    if all(uri.startswith(SERVED) for uri in uris):
        return SERVED
    common = []
    folders = [uri.partition("?")[0].partition("#")[0].rpartition("/")[0].split("/") for uri in uris]
    for names in zip(*folders, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return "/".join((*common, "")) if len(common) > 2 else ""
