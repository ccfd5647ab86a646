"""What a text means as the URL or the path of a catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.catalog.catalog_url import (
    BadPlace,
    ClusterPlace,
    Credentials,
    Place,
    access_of,
    anchored,
    open_catalog,
    place_of,
    shown,
    with_patience,
)
from headwater.catalog.interface import ClusterOptions
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.storage.cluster import Node, authorization

ONE = (("search", 9200),)
PLACES: list[tuple[str, Place]] = [
    ("catalog.sqlite", Path("catalog.sqlite")),
    ("sqlite:/srv/a b.sqlite", Path("/srv/a b.sqlite")),
    ("sqlite:c:d", Path("c:d")),
    ("opensearch://search", ClusterPlace(nodes=ONE)),
    ("opensearch://search/", ClusterPlace(nodes=ONE)),
    ("elasticsearch://search:9200/mine", ClusterPlace(nodes=ONE, prefix="mine")),
    ("opensearch://a:1,b,[::1]:3/p", ClusterPlace(nodes=(("a", 1), ("b", 9200), ("::1", 3)), prefix="p")),
    (
        "opensearch://us%40er:p%3Aw%2F@search/p",
        ClusterPlace(nodes=ONE, prefix="p", credentials=Credentials(user="us@er", password="p:w/")),
    ),
    (
        "opensearch://search/p?shards=3&replicas=0&tls=true&ca=/a%20b.pem&lease_seconds=2.5",
        ClusterPlace(
            nodes=ONE,
            prefix="p",
            options=ClusterOptions(shards=3, replicas=0, tls=True, ca="/a b.pem", lease_seconds=2.5),
        ),
    ),
]


@pytest.mark.parametrize(("text", "place"), PLACES)
def test_what_a_text_means(text: str, place: Place) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("catalog.sqlite", "/etc/source/catalog.sqlite"),
        ("sqlite:catalog.sqlite", "/etc/source/catalog.sqlite"),
        ("sqlite:/srv/catalog.sqlite", "/srv/catalog.sqlite"),
        ("opensearch://a,b:1/p", "opensearch://a,b:1/p"),
        ("opensearch://a/p?ca=ca.pem", "opensearch://a/p?ca=/etc/source/ca.pem"),
        (
            "opensearch://a/p?tls=true&ca=a+b%26.pem&shards=2",
            "opensearch://a/p?tls=true&ca=/etc/source/a%20b%26.pem&shards=2",
        ),
        ("opensearch://a/p?ca=/ssl/ca.pem", "opensearch://a/p?ca=/ssl/ca.pem"),
        ("opensearch://ca=x:y@a/p", "opensearch://ca=x:y@a/p"),
        ("https://user:p@a:9200/index?ca=ca.pem", "https://user:p@a:9200/index?ca=/etc/source/ca.pem"),
    ],
)
def test_what_is_relative_in_a_place_counts_from_a_folder(text: str, expected: str) -> None:
    assert anchored(text, Path("/etc/source")) == expected
    assert anchored(expected, Path("/elsewhere")) == expected, "once is enough"


@pytest.mark.parametrize(
    "text",
    [
        "http://search:9200/p",
        "mysql://search/p",
        "opensearch://",
        "opensearch://:9200/p",
        "opensearch://search:0/p",
        "opensearch://search:99999/p",
        "opensearch://a,,b/p",
        "opensearch://search/p/q",
        "opensearch://search/p?shards=0",
        "opensearch://search/p?replica=1",
        "opensearch://search/p?tls=perhaps",
        "opensearch://search/p?shards",
        "opensearch://search/p#x",
        "opensearch://search/_all",
        "opensearch://search/-x",
        "opensearch://search/p*",
        "opensearch://search/Upper",
    ],
)
def test_what_is_no_place_is_said(text: str) -> None:
    with pytest.raises(BadPlace):
        place_of(text)


@pytest.mark.parametrize(
    ("place", "seconds"),
    [("opensearch://a/p", 5), ("opensearch://a/p?shards=2", 5), ("opensearch://a/p?patience_seconds=90", 90)],
)
def test_patience_is_what_the_url_says_or_else_the_caller(place: str, seconds: float) -> None:
    assert place_of_cluster(with_patience(place, 5)).options.patience_seconds == seconds


def test_credentials_of_the_environment_count_before_those_of_the_url() -> None:
    place = place_of("opensearch://u:p@search/x")
    assert isinstance(place, ClusterPlace)
    assert (access_of(place).user, access_of(place).password) == ("u", "p")
    access = access_of(place, Credentials(user="v", password="q", api_key="k"))
    assert (access.user, access.password, access.api_key) == ("v", "q", "k")
    assert access.nodes == (Node("search", 9200),)


def test_an_api_key_counts_before_a_user() -> None:
    access = access_of(place_of_cluster("opensearch://u:p@search/x"), Credentials(api_key="a2V5"))
    assert authorization(access.user, access.password, access.api_key) == "ApiKey a2V5"


def place_of_cluster(text: str) -> ClusterPlace:
    place = place_of(text)
    assert isinstance(place, ClusterPlace)
    return place


@pytest.mark.parametrize(
    "password", ["secret", "sec/ret", "sec@ret", "9200?secret", "se?c=ret", "9200#secret", "/secret"]
)
def test_a_password_is_not_told(password: str) -> None:
    """Also where its signs are not encoded, so that the URL means something else."""
    with pytest.raises(BadPlace) as said:
        place_of(f"opensearch://u:{password}@search/p?x=1")
    assert "ret" not in f"{said.value}{said.value.todo}{said.value.__cause__}"
    assert shown(f"opensearch://u:{password}@search/p") == "opensearch://u@search/p"


def test_no_secret_is_in_what_repr_tells() -> None:
    place = place_of_cluster("opensearch://u:secret@search/p")
    credentials = Credentials(password="secret", api_key="secret")
    assert "secret" not in repr((place, credentials, access_of(place), access_of(place, credentials)))


def test_a_place_is_told_as_it_is() -> None:
    assert shown("opensearch://u:secret@a:1,b:2/p") == "opensearch://u@a:1,b:2/p"
    assert shown("opensearch://a:1,b:2/p") == "opensearch://a:1,b:2/p"


def test_a_file_is_opened(tmp_path: Path) -> None:
    for place in (tmp_path / "a.sqlite", f"sqlite:{tmp_path}/a.sqlite", f"{tmp_path}/a.sqlite"):
        catalog = open_catalog(place)
        assert isinstance(catalog, SqliteCatalog)
        catalog.create("s")
        assert [state.name for state in catalog.sets()] == ["s"]
        catalog.close()
