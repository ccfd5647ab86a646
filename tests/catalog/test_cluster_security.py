"""Catalogs on real engines that talk TLS alone and want to know who asks: who gets in, with which rights, who does not.

The roles are those of docs/how-to/use-several-processes-or-a-cluster.md: what is written there is tried here.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tools.engines.engine import Engine
from tools.engines.launch import free_port

from headwater.catalog.catalog_url import NOBODY, Credentials, is_there, open_catalog, with_patience
from headwater.catalog.cluster.catalog import ClusterCatalog
from headwater.catalog.interface import Metadata, StateRow, StateUpdate, Upsert
from headwater.catalog.verify import verify
from headwater.errors import Exit
from headwater.progress import Notice, Progress
from headwater.storage.cluster import Access, Cluster, ClusterFault, ClusterRefused, ClusterUnsafe, Node
from tests.support.engines import prefix
from tests.test_engines import closed, names_itself, paused_and_resumed, stopped_in_order

pytestmark = pytest.mark.long(75)

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-several-processes-or-a-cluster.md"
START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
SECRET = "Tr0ub4dor"
PASSWORD = "Zu guter: L/etzt @77% \N{EURO SIGN}"
TO_MAKE = {"manage", "create_index", "indices:admin/aliases"}
"""What is needed for nothing but to make a catalog."""


class Secured:
    """An engine, as its administrator sees it."""

    def __init__(self, engine: Engine) -> None:
        assert engine.security is not None
        self.name, self.port, self.security = engine.name, engine.port, engine.security
        self.ca = str(engine.security.ca)
        self.home = prefix()
        self.admin = Credentials(user=engine.security.user, password=engine.security.password)
        node = Node("localhost", self.port)
        who = {"user": engine.security.user, "password": engine.security.password}
        self._cluster = Cluster(Access(nodes=(node,), tls=True, ca=self.ca, **who))

    def place(self, prefix: str, *, nodes: str = "", who: str = "", options: str | None = None) -> str:
        """Where the catalog of a prefix is; `options` take the place of those that are right."""
        options = f"tls=true&ca={quote(self.ca)}" if options is None else options
        return f"{self.name}://{who}{nodes or f'localhost:{self.port}'}/{prefix}?{options}&replicas=0"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return json.loads(self._cluster.ask(method, path, None if body is None else json.dumps(body).encode()).body)

    def permitted(self, prefix: str, without: set[str] | None = None) -> Credentials:
        """Somebody with the documented privileges on a prefix, but for some."""
        role = documented("index_permissions" if self.name == "opensearch" else "role_descriptors", prefix, without)
        if self.name == "elasticsearch":
            return Credentials(api_key=self.ask("POST", "/_security/api_key", role)["encoded"])
        api, name = "/_plugins/_security/api", f"{prefix}-{len(without or ())}"
        self.ask("PUT", f"{api}/roles/{name}", role)
        self.ask("PUT", f"{api}/internalusers/{name}", {"password": PASSWORD, "opendistro_security_roles": [name]})
        return Credentials(user=name, password=PASSWORD)

    def close(self) -> None:
        self._cluster.close()


def documented(key: str, prefix: str, without: set[str] | None) -> Any:
    """The role in the manual that has this key."""
    blocks = re.findall(r"```json\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    (text,) = (block for block in blocks if f'"{key}"' in block)
    return pruned(json.loads(text.replace("headwater-*", f"{prefix}-*")), without or set())


def pruned(value: Any, without: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: pruned(one, without) for key, one in value.items()}
    if isinstance(value, list):
        return [pruned(one, without) for one in value if not (isinstance(one, str) and one in without)]
    return value


@pytest.fixture(scope="module")
def elastic(secured_elasticsearch: Engine) -> Iterator[Secured]:
    yield from inhabited(secured_elasticsearch)


@pytest.fixture(scope="module")
def opens(secured_opensearch: Engine) -> Iterator[Secured]:
    yield from inhabited(secured_opensearch)


@pytest.fixture(params=["elastic", "opens"])
def secured(request: pytest.FixtureRequest) -> Secured:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Secured)
    return found


def inhabited(engine: Engine) -> Iterator[Secured]:
    """The engine, with a catalog in it that was made with the documented privileges."""
    secured = Secured(engine)
    makes = secured.permitted(secured.home)
    assert not is_there(secured.place(secured.home), credentials=makes)
    catalog = opened(secured.place(secured.home), makes)
    live(catalog, "s")
    catalog.close()
    yield secured
    secured.close()


def opened(place: str, credentials: Credentials = NOBODY) -> ClusterCatalog:
    catalog = open_catalog(place, credentials=credentials)
    assert isinstance(catalog, ClusterCatalog)
    return catalog


def live(catalog: ClusterCatalog, name: str) -> None:
    """All that is done with a catalog on a cluster."""
    catalog.create(name)
    catalog.load(name, [Upsert(f"{n:03}", Metadata(length=n)) for n in range(300)])
    catalog.open(name, START)
    catalog.record(name, [Upsert("new", Metadata(length=1))], START + SECOND)
    catalog.remember(name, [("new", b"memo")])
    catalog.note(name, b"note")
    catalog.close_segment(name, START + 2 * SECOND)
    lease = catalog.lease("publish", "us")
    assert lease.take()
    lease.release()
    catalog.record(name, [], START + SECOND, state=StateUpdate([StateRow("k", "a")]))
    assert catalog.rows_of(name, "k") == [StateRow("k", "a")]
    assert catalog.sets_with_rows("k").keys() <= {name, "s", "t", "u"}  # those of other tests here
    assert len(catalog.resources(name)) == len(list(catalog.page(name, 0))) == 301
    assert catalog.newest()[name] == len(catalog.changes(name)) == 1
    assert verify(catalog, name) == []


def test_the_documented_privileges_are_enough(secured: Secured) -> None:
    """To make a catalog: it is there. To work with it, afterwards, those that only makers need are not needed."""
    works = secured.permitted(secured.home, TO_MAKE)
    assert is_there(secured.place(secured.home), credentials=works)
    catalog = opened(secured.place(secured.home), works)
    live(catalog, "t")
    catalog.close()


def test_who_only_looks_needs_no_right_to_write(elastic: Secured) -> None:
    catalog = opened(elastic.place(elastic.home), elastic.permitted(elastic.home, {*TO_MAKE, "write"}))
    assert len(catalog.resources("s")) == 301
    assert len(list(catalog.page("s", 0))) > 1
    assert verify(catalog, "s") == []
    assert catalog.newest()["s"] == 1
    with pytest.raises(ClusterRefused, match="write"):
        catalog.note("s", b"another")
    catalog.close()


def test_a_right_that_is_missing_is_named(secured: Secured) -> None:
    place = prefix()
    with pytest.raises(ClusterRefused, match="indices:admin/create") as fault:
        opened(secured.place(place), secured.permitted(place, TO_MAKE))
    assert "also manage" in fault.value.todo
    assert fault.value.exit_status == Exit.STORE


def test_who_may_not_see_a_catalog_is_not_told_that_there_is_none(secured: Secured) -> None:
    stranger = secured.permitted(prefix())
    with pytest.raises(ClusterRefused) as fault:
        is_there(secured.place(secured.home), credentials=stranger)
    assert f"{secured.home}-set-v" in str(fault.value)


WRONG: list[tuple[str, dict[str, str], Credentials, type[ClusterFault], str, str]] = [
    (
        "wrong password",
        {},
        Credentials(user="admin", password=SECRET),
        ClusterRefused,
        "401|authenticat",
        "HEADWATER_CLUSTER_USER",
    ),
    ("in the URL", {"who": f"admin:{SECRET}@"}, NOBODY, ClusterRefused, "401|authenticat", "HEADWATER_CLUSTER_USER"),
    ("nobody", {}, NOBODY, ClusterRefused, "401|authenticat", "HEADWATER_CLUSTER_USER"),
    (
        "wrong key",
        {},
        Credentials(api_key=f"id:{SECRET}"),
        ClusterRefused,
        "401|authenticat",
        "HEADWATER_CLUSTER_API_KEY",
    ),
    ("no authority", {"options": "tls=true"}, NOBODY, ClusterUnsafe, "verify failed", "ca=FILE"),
    ("another name", {"nodes": "127.0.0.1:{port}"}, NOBODY, ClusterUnsafe, "'127.0.0.1'", "by the names in it"),
]


@pytest.mark.parametrize(
    ("place", "who", "kind", "said", "todo"), [row[1:] for row in WRONG], ids=[w[0] for w in WRONG]
)
def test_what_cannot_pass_is_said_and_tells_no_secret(
    secured: Secured, place: dict[str, str], who: Credentials, kind: type[ClusterFault], said: str, todo: str
) -> None:
    told: list[Notice | Progress] = []
    named = {key: text.format(port=secured.port) for key, text in place.items()}
    text = with_patience(secured.place("x", **named), 0.3)
    with pytest.raises(kind, match=said) as fault:
        open_catalog(text, credentials=who, listener=told.append)
    assert told == [] or kind is ClusterUnsafe  # nothing was tried again, but for a secure connection
    assert todo in fault.value.todo
    assert fault.value.exit_status == Exit.STORE
    words = "".join(traceback.format_exception(fault.value)) + repr(fault.value.__dict__)
    assert SECRET not in words
    assert str(secured.port) in str(fault.value.where)


def test_an_api_key_that_is_revoked_ends_the_work_and_loses_nothing(elastic: Secured) -> None:
    credentials = elastic.permitted(elastic.home, TO_MAKE)
    catalog = opened(elastic.place(elastic.home), credentials)
    live(catalog, "u")
    key = base64.b64decode(credentials.api_key or "").decode().partition(":")[0]
    elastic.ask("DELETE", "/_security/api_key", {"ids": [key]})
    with pytest.raises(ClusterRefused, match="invalidated") as fault:
        catalog.record("u", [Upsert("kept", Metadata())], START + 3 * SECOND)
    assert "revoked" in fault.value.todo
    catalog.close()
    catalog = opened(elastic.place(elastic.home), elastic.permitted(elastic.home, TO_MAKE))
    assert catalog.record("u", [Upsert("kept", Metadata())], START + 3 * SECOND).last == 2
    assert verify(catalog, "u") == []
    catalog.close()


def test_signs_of_a_user_and_a_password_are_encoded_in_a_url(elastic: Secured) -> None:
    user, place = "us@er/1", elastic.home
    elastic.ask("PUT", f"/_security/user/{quote(user, safe='')}", {"password": PASSWORD, "roles": ["superuser"]})
    who = f"{quote(user, safe='')}:{quote(PASSWORD, safe='')}@"
    assert is_there(elastic.place(place, who=who))
    assert is_there(elastic.place(place, who=f"{quote(user, safe='')}@"), credentials=Credentials(password=PASSWORD))


def test_a_node_by_its_ipv6_address(elastic: Secured) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as lacking:
        pytest.skip(f"no IPv6 on loopback: {lacking}")
    assert is_there(elastic.place(elastic.home, nodes=f"[::1]:{elastic.port}"), credentials=elastic.admin)


def test_the_first_of_several_nodes_is_down(elastic: Secured) -> None:
    nodes = f"localhost:{free_port()},localhost:{elastic.port}"
    for _ in range(4):  # whichever is asked first
        assert is_there(elastic.place(elastic.home, nodes=nodes), credentials=elastic.admin)


def headwater(who: Credentials, *args: object, status: int = 0) -> str:
    """What a command says; it must tell no secret."""
    own = {
        "HEADWATER_CLUSTER_USER": who.user,
        "HEADWATER_CLUSTER_PASSWORD": who.password,
        "HEADWATER_CLUSTER_API_KEY": who.api_key,
    }
    environment = {**os.environ, **{name: value for name, value in own.items() if value is not None}}
    command = [sys.executable, "-m", "headwater", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert not any(secret in said for secret in (who.password, who.api_key, SECRET) if secret)
    return said


def test_a_whole_life_by_the_configuration_and_by_the_option(elastic: Secured, tmp_path: Path) -> None:
    """Everything that the manual shows for a cluster, with an API key that may do what it says and no more."""
    place, moved = prefix(), prefix()
    files, config, dump = tmp_path / "files", tmp_path / "source.toml", tmp_path / "dump.gz"
    files.mkdir()
    for name in "abc":
        (files / name).write_text(name)
    config.write_text(
        f'state = "state"\ncatalog = "{elastic.place(place)}"\nbase_url = "https://example.org"\n'
        '[[set]]\nname = "files"\nfiles = "files"\n'
        '[[set]]\nname = "fed"\nfeed = "events"\ntoken = "0123456789abcdef"\nresource_base = "https://example.org/r"\n'
    )
    key = elastic.permitted(place)
    assert "3 resources in set files" in headwater(key, "publish", config)
    events = tmp_path / "events.ndjson"
    events.write_text('{"uri": "https://example.org/r/1", "change": "created"}\n')
    headwater(key, "ingest", "events", "--config", config, "--set", "fed", events)
    told = json.loads(headwater(key, "status", config, "--json"))
    assert [(one["name"], one["resources"]) for one in told["sets"]] == [("fed", 1), ("files", 3)]
    assert "sound" in headwater(key, "catalog", "verify", elastic.place(place))
    headwater(key, "catalog", "export", elastic.place(place), "-o", dump)
    refused = headwater(key, "catalog", "import", dump, elastic.place(moved), status=Exit.STORE)
    assert "HW-CLU-05" in refused
    assert "also manage" in refused
    other = elastic.permitted(moved)
    headwater(other, "catalog", "import", dump, elastic.place(moved))
    out = ("--files", files, "--to", tmp_path / "out", "--base-url", "https://example.org")
    headwater(other, "publish", *out, "--set", "files", "--catalog", elastic.place(moved))
    assert "sound" in headwater(other, "catalog", "verify", elastic.place(moved))
    wrong = headwater(NOBODY, "status", elastic.place(place, who=f"admin:{SECRET}@"), status=Exit.STORE)
    assert "HW-CLU-05" in wrong


def test_the_promises_of_an_engine(secured_elasticsearch: Engine, elastic: Secured) -> None:
    """They are tried on the engine with a launcher as well; it is the last that is done with this one."""
    del elastic  # which gives it up when the module ends
    engine = secured_elasticsearch
    names_itself(engine)
    paused_and_resumed(engine)
    stopped_in_order(engine)
    closed(engine)
