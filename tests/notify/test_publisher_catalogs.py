"""What is sent to hubs from any catalog: how far they were told is in it, for whoever publishes next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.source.config import SourceConfig
from headwater.source.notifications.notify_config import NotifyConfig
from tests.notify.subscriber import Answer, Subscriber
from tests.notify.test_framework import told
from tests.notify.test_publisher import is_chain, names
from tests.source.test_durable_listener import HERE, PushedSource, world

__all__ = ["world"]


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
    with world.running():
        world.record("a", "three")
        far.wait(lambda: "three" in names(far.deliveries("/hub")))
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
