"""Generic URIs: which representation a client gets, by what it says, and that hostile headers do no harm."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import pytest

from headwater.http.requests import weights
from headwater.http.resources import choose
from tests.support.serving import Face
from tests.support.serving import face as serve
from tests.support.waiting import settle

TYPES = ("text/html", "application/pdf", "application/rdf+xml; charset=utf-8")


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, 0),
        (b"", 0),
        (b"*/*", 0),
        (b"application/pdf", 1),
        (b"Application/PDF", 1),
        (b"application/*", 1),
        (b"application/rdf+xml", 2),
        (b"text/html;q=0.5, application/pdf", 1),
        (b"text/html;q=0.5, application/*;q=0.4", 0),
        (b"*/*, text/html;q=0", 1),
        (b"text/*;q=0.3, text/html;q=0.7, */*;q=0.5", 0),
        (b"text/html;level=1, application/pdf;q=0.1", 0),
        (b"text/html;q=0", None),
        (b"image/png", None),
        (b"*/*;q=0", None),
        (b"text/html;q=1.001, application/pdf;q=0.1", 1),
        (b"text/html;q=-1, application/pdf;q=0.1", 1),
        (b"text/html;q=99999999999999999999, application/pdf;q=0.1", 1),
        (b"text/html;q=nan, application/pdf;q=0.1", 1),
        (b"*/html, application/pdf;q=0.1", 1),
        (b"nonsense", 0),
        (b"\0/\xff", 0),
        (b", ,, ;q=1", 0),
        (b"text/html;q=0.5;q=1, application/pdf;q=0.6", 1),
        (b",".join([b"image/png"] * 10_000), 0),
    ],
)
def test_choice_of_a_representation(header: bytes | None, wanted: int | None) -> None:
    """RFC 9110 12.5.1: the most exact range counts; of equals the first representation; the malformed is absent."""
    assert choose(header, TYPES) == wanted


def test_a_hostile_header_costs_nothing() -> None:
    began = time.process_time()
    for text in (b"a/b" + b";" * 4_000, b"a/" + b"!" * 4_000, b"a/b;q=" + b"0" * 4_000, b" " * 4_096, b";,/" * 1_300):
        weights(text)
        choose(text, TYPES * 30)
    assert time.process_time() - began < 1


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Face]:
    tmp_path = tmp_path_factory.mktemp("negotiation")
    files = tmp_path / "files"
    (files / "a").mkdir(parents=True)
    (files / "secret").mkdir()
    for name in ("a/r.html", "a/r.pdf", "both", "both.html", "both.pdf", "one.pdf", "secret/s.html", "r.html.pdf"):
        (files / name).write_text(name)
    (tmp_path / "outside.html").write_text("outside")
    (files / "link.html").symlink_to(tmp_path / "outside.html")
    settle()  # at rest for longer than a tick, so that the tags are strong
    with serve(files, tmp_path / "state", variants=("html", "pdf"), exclude=("secret/",), watch=False) as running:
        yield running


def test_a_generic_uri_gives_what_is_preferred(face: Face) -> None:
    """RS-REL-02, RS-REL-03: with hash, address and alternatives of what is sent; conditions hold of that."""
    home = f"{face.url}/files/resources/"
    html, pdf = face.get("/files/resources/a/r"), face.get("/files/resources/a/r", accept="application/pdf")
    for answer, name, kind in ((html, "a/r.html", "text/html"), (pdf, "a/r.pdf", "application/pdf")):
        assert (answer.status, answer.body) == (200, name.encode())
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["etag"] == f'"{hashlib.sha256(name.encode()).hexdigest()}"'
        assert answer.headers["vary"] == "Accept"
        assert answer.headers["content-location"] == home + name
        assert f'<{home}a/r>; rel="canonical"' in answer.headers["link"]
        assert f'<{home}a/r.pdf>; rel="alternate"; type="application/pdf"' in answer.headers["link"]
    head = face.get("/files/resources/a/r", "HEAD", accept="application/pdf")
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", pdf.headers["etag"])
    fresh = face.get("/files/resources/a/r", if_none_match=html.headers["etag"])
    assert (fresh.status, fresh.headers["vary"]) == (304, "Accept")
    assert face.get("/files/resources/a/r", if_none_match=html.headers["etag"], accept="application/pdf").status == 200
    part = face.get("/files/resources/a/r", range="bytes=0-1", accept="application/pdf")
    assert (part.status, part.body) == (206, b"a/")


def test_what_is_not_acceptable_is_told_with_what_there_is(face: Face) -> None:
    answer = face.get("/files/resources/a/r", accept="image/png")
    assert answer.status == 406
    assert answer.headers["vary"] == "Accept"
    assert answer.body.decode().splitlines()[1:] == [
        f"{face.url}/files/resources/a/r.html text/html",
        f"{face.url}/files/resources/a/r.pdf application/pdf",
    ]
    assert face.get("/files/resources/one", accept="text/html").status == 406
    assert face.get("/files/resources/a/r", accept=",".join(["image/png"] * 1_500)).status in (200, 431)


def test_a_variant_under_its_own_uri_leads_to_the_others(face: Face) -> None:
    """RS-REL-02, RS-REL-03: in the header as in lists, and in no other answer."""
    home = f"{face.url}/files/resources/"
    for headers in (
        face.get("/files/resources/a/r.html").headers,
        face.get("/files/resources/a/r.html", "HEAD").headers,
        face.get("/files/resources/a/r.html", range="bytes=0-1").headers,
    ):
        assert f'<{home}a/r>; rel="canonical", <{home}a/r.pdf>; rel="alternate"; type="application/pdf"' in str(headers)
        assert f"{home}a/r.html" not in headers["link"]
        assert "vary" not in headers
    for name in ("both.html", "both", "nothing.html", "secret/s.html"):
        assert "canonical" not in face.get(f"/files/resources/{name}").headers.get("link", "")


def test_a_file_at_the_generic_uri_wins(face: Face) -> None:
    answer = face.get("/files/resources/both", accept="application/pdf")
    assert (answer.body, "vary" in answer.headers) == (b"both", False)


@pytest.mark.parametrize(
    "target", ["secret/s", "../outside", "%2e%2e/outside", "link", "a/", "", "a/r.", "a", "nothing", "../../state/x"]
)
def test_generic_uris_lead_nowhere_else(face: Face, target: str) -> None:
    """What is excluded, lies outside, or is no resource has no generic URI either."""
    assert face.get(f"/files/resources/{target}").status == 404
