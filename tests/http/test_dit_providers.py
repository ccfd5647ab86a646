"""Several providers of one source, each with its set, its token and its documents, answered from what lies ready."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.source.config import SetConfig
from tests.http.announcing import PushServer, said, serving
from tests.support.documents import read_bytes
from tests.support.push_set import change, resource
from tests.support.serving import request
from tests.support.waiting import until

TOKENS = {"elsevier": "e" * 32, "springer": "p" * 32}


SETS = tuple(
    SetConfig(
        name=name,
        feed="dit",
        token=token,
        resource_base=f"http://{name}.example.org/",
        resource_sets=(name.title(),),
        pair_seconds=0.5,
    )
    for name, token in TOKENS.items()
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushServer]:
    with serving(tmp_path_factory.mktemp("providers"), sets=SETS) as fed:
        yield fed


def pair(path: str, name: str) -> list[object]:
    return [resource(path, 1, resource_set=name), change(path, "created", 1, resource_set=name)]


def described(running: PushServer) -> list[str]:
    """The sets that the Source Description names."""
    answer = request(running.url, "/.well-known/resourcesync")
    return sorted(one.loc.rsplit("/", 2)[1] for one in read_bytes(answer.body)[1]) if answer.status == 200 else []


def test_dit_21_each_provider_has_its_own_set(running: PushServer) -> None:
    """DIT-21: its token opens no other set, its documents are in no other list, a bad one holds up nobody's."""
    for name, token in TOKENS.items():
        mine, others = name.title(), next(one for one in TOKENS if one != name).title()
        answer = running.post("/ingest/dit", [*pair("a", mine), *pair("a", others), *pair("b", "Nobody")], token)
        assert answer.status == 207
        results = said(answer)["results"]
        assert isinstance(results, list)
        assert [one["status"] for one in results] == [200, 200, 422, 422, 422, 422]
        assert [one.get("code") for one in results[2:]] == ["HW-SRV-04"] * 2 + ["HW-ING-48"] * 2
        wanted = [("created", f"http://{name}.example.org/a")]
        until(lambda: running.listed(name) == wanted, what="the provider's own change")  # noqa: B023
    until(lambda: described(running) == sorted(TOKENS), what="both sets in the Source Description")


def test_dit_20_answers_come_from_documents_that_lie_ready(
    running: PushServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DIT-20, DIT-25, DIT-26: no list is made because somebody asks for it, and who has it is told so (304)."""
    before = running.listed("elsevier")
    running.post("/ingest/dit", pair("cached", "Elsevier"), TOKENS["elsevier"])
    until(lambda: running.listed("elsevier") != before, what="the change")
    asked: list[str] = []
    for method in ("resources", "page", "changes", "get", "memos"):
        monkeypatch.setattr(SqliteCatalog, method, lambda *_args, _name=method, **_more: asked.append(_name))
    for target in ("resourcelist.xml", "changelist.xml", "changelist/open.xml", "capabilitylist.xml"):
        first = request(running.url, f"/elsevier/{target}")
        assert (first.status, len(first.body) > 100) == (200, True)
        again = request(running.url, f"/elsevier/{target}", headers={"if-none-match": first.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
    assert asked == []
