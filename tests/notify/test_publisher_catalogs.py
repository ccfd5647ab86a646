"""What is sent to hubs from any catalog: how far they were told is in it, for whoever publishes next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.progress import silent
from headwater.publish.document_names import FRAMEWORK_CHANNEL
from headwater.source.config import SourceConfig
from headwater.source.configured_source import utc_now
from headwater.source.health import records
from headwater.source.hubs_and_tokens import NotifyConfig
from headwater.source.notifier import FrameworkStream, NotifyContext, latest_payload
from tests.notify.subscriber import Answer, Subscriber
from tests.notify.test_framework import told
from tests.notify.test_publisher import is_chain, names
from tests.support.documents import read_bytes
from tests.support.pushed_source import HERE, PushedSource, local, world
from tests.support.waiting import until

__all__ = ["local", "world"]

pytestmark = pytest.mark.long(15)


@pytest.fixture
def far() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def test_another_process_goes_on_where_the_last_one_ended(
    world: PushedSource, far: Subscriber, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = world.config

    def config(base_url: str = HERE) -> SourceConfig:
        notify = NotifyConfig(hubs=(f"{far.url}/hub",), batch_seconds=0, framework_seconds=0)
        return msgspec.structs.replace(plain(base_url), notify=notify)

    monkeypatch.setattr(world, "config", config)
    topics = [f"{HERE}/{name}/frameworknotification.xml" for name in "ab"]
    with world.running() as source:
        far.wait(lambda: source.is_published("a") and source.is_published("b"))
        world.record("a", "one", "two")
        far.wait(lambda: names(far.deliveries("/hub")) == ["one", "two"])
    far.answers["/hub"] = lambda _came: Answer(503, b"")
    with world.running() as source:
        world.record("a", "three")
        until(lambda: any(one["waiting"] for one in records(source.health().get("hubs"))))
    del far.answers["/hub"]
    with world.running():
        world.record("a", "four")
        far.wait(lambda: "four" in names(far.deliveries("/hub")))
    for topic in topics:  # each document once, whoever has the right to publish
        documents = [name for name, kind in told(far, topic) if kind == "created"]
        assert len(set(documents)) == len(documents) >= 4
    assert ("/a/changelist.xml", "updated") in told(far, topics[0])
    assert ("/b/changelist.xml", "updated") not in told(far, topics[1])
    assert names(far.deliveries("/hub")) == ["one", "two", "three", "four"]
    assert is_chain(far.deliveries("/hub"))


def test_a_payload_that_was_taken_is_kept_in_its_row_alone(local: PushedSource) -> None:
    with local.running() as source:
        until(lambda: all(map(source.is_published, "ab")) and source.is_site_published())  # which comes last
        context = NotifyContext(
            catalog=source.catalog,
            store=source.store,
            site=source.site,
            clock=utc_now,
            listener=silent,
            may_write=lambda: None,
            is_shown=lambda _name: True,
            token=None,
            settings=NotifyConfig(hubs=("http://h.example/",)),
        )
        stream = FrameworkStream("a", "http://h.example/", context)
        payload = stream.next_payload()
        assert payload
        stream.taken()
        assert stream.next_payload() is None
        assert latest_payload(source.catalog, "a", FRAMEWORK_CHANNEL, ["http://h.example/"]) == payload
        assert stream.position is not None
        assert not stream.position.payload, "only the row has it"


def test_a_document_changed_no_earlier_than_what_it_states(local: PushedSource) -> None:
    with local.running() as source:
        until(lambda: source.is_published("a"))
        local.record("a", "one")
        written = local.folder / "state" / "documents" / "a" / "changelist.xml"
        until(lambda: b"/one<" in written.read_bytes() and source.is_published("a"))
        os.utime(written, (1e9, 1e9))  # the clock of a file system goes in steps, and one far away by itself
        context = NotifyContext(
            catalog=source.catalog,
            store=source.store,
            site=source.site,
            clock=utc_now,
            listener=silent,
            may_write=lambda: None,
            is_shown=lambda _name: True,
            token=None,
            settings=NotifyConfig(hubs=("http://h.example/",)),
        )
        payload = FrameworkStream("a", "http://h.example/", context).next_payload()
        assert payload
        changed = {one.loc.rpartition("/")[2]: one.datetime for one in read_bytes(payload)[1]}
        (change,) = source.catalog.changes("a", 0, 2)
        assert changed["changelist.xml"] == change.at


def test_sets_of_others_in_one_catalog_are_not_told_of_as_gone(
    local: PushedSource, far: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, sets = local.config, slice(None)

    def config(base_url: str = HERE) -> SourceConfig:
        whole = plain(base_url)
        notify = NotifyConfig(hubs=(f"{far.url}/hub",), batch_seconds=0, framework_seconds=0)
        return msgspec.structs.replace(whole, notify=notify, sets=whole.sets[sets])

    def changes(base: str, name: str) -> list[tuple[str, str]]:
        return told(far, f"{base}/{name}/frameworknotification.xml")

    monkeypatch.setattr(local, "config", config)
    created, deleted = ("/b/capabilitylist.xml", "created"), ("/b/capabilitylist.xml", "deleted")
    with local.running():
        far.wait(lambda: created in changes(HERE, "b") and ("/a/capabilitylist.xml", "created") in changes(HERE, "a"))
    sets = slice(1)
    other = "http://other.example"
    with local.running(base_url=other):
        far.wait(lambda: ("/a/capabilitylist.xml", "updated") in changes(other, "a"))
    assert deleted not in changes(other, "b") + changes(HERE, "b")
    with local.running():
        far.wait(lambda: deleted in changes(HERE, "b"))
