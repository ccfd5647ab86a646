"""Sets that come and go by Framework Notifications, and several sources behind one listener."""

from __future__ import annotations

from pathlib import Path

from tests.notify.following.pushing import CHANGES, FRAMEWORK, Hub, following, pushed_site, text
from tests.support.fake_source import Source
from tests.support.waiting import until

KINDS = (CHANGES, FRAMEWORK)


def test_framework_notifications_add_and_remove_sets(source: Source, hub: Hub, dest: Path) -> None:
    """RS-FN-04, RS-CH-04: the Source Description has changed."""
    first, second = pushed_site(source, hub.url, kinds=KINDS), pushed_site(source, hub.url, name="more", kinds=KINDS)
    source.pages["/.well-known/resourcesync"] = first.described("set")
    description = f"{source.base}/.well-known/resourcesync"
    with following((source.base, dest)) as copy:
        copy.at_work()
        until(lambda: len(hub.answers) == 2)
        source.pages["/.well-known/resourcesync"] = first.described("set", "more")
        first.tell_documents(hub, description, capability="description")
        until(lambda: text(dest / "more" / "f0.txt") == "body 0\n")
        until(lambda: hub.of(second.topic()) and hub.of(second.topic(FRAMEWORK)) and len(hub.answers) == 4)
        second.put("new.txt", b"new")
        assert hub.deliver(second.topic(), second.notification()) == 202
        until(lambda: text(dest / "more" / "new.txt") == "new")

        source.pages["/.well-known/resourcesync"] = first.described("set")
        first.tell_documents(hub, description, capability="description")
        until(lambda: hub.of(second.topic(), "unsubscribe") and hub.of(second.topic(FRAMEWORK), "unsubscribe"))
        assert copy.heard("the source no longer offers the set more")
        assert text(dest / "more" / "new.txt") == "new"
        first.put("new.txt", b"first")
        assert hub.deliver(first.topic(), first.notification()) == 202
        until(lambda: text(dest / "new.txt") == "first")


def test_several_sources_are_followed_behind_one_listener(tmp_path: Path) -> None:
    with Source() as one, Source() as other:
        sites = []
        for number, source in enumerate((one, other)):
            sites.append((pushed_site(source, Hub(source).url), tmp_path / f"copy{number}"))
        hubs = [Hub(site.source) for site, _ in sites]
        with following(*((site.source.base, where) for site, where in sites)) as copy:
            for hub, (site, where) in zip(hubs, sites, strict=True):
                asked = hub.subscription(site.topic())
                assert asked.callback.startswith(copy.callbacks)
                site.put("new.txt", site.source.base.encode())
                assert hub.deliver(site.topic(), site.notification()) == 202
                until(lambda where=where, site=site: text(where / "new.txt") == site.source.base)  # type: ignore[misc]


def test_callbacks_begin_with_what_the_user_says(source: Source, hub: Hub, dest: Path) -> None:
    """Behind a reverse proxy, whatever that makes of the path."""
    site = pushed_site(source, hub.url)
    hub.verifies = False
    with following((source.base, dest), callback_url="http://127.0.0.1:1/hooks/", listen=("127.0.0.1", 0)) as copy:
        until(lambda: hub.asked)
        callback = hub.asked[0].callback
        assert callback.startswith("http://127.0.0.1:1/hooks/")
        assert copy.callbacks == "http://127.0.0.1:1/hooks/"
    assert site.topic() == hub.asked[0].fields["hub.topic"]
