"""Hubs and topics by a proxy: who is told what, which addresses are refused, and what a proxy may answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.engines.certificates import Authority

from headwater.errors import UsageFault
from headwater.notify.http_client import (
    AnswerBounds,
    HttpAnswer,
    HttpClient,
    HttpFailure,
    HttpProxy,
    read_proxy,
)
from headwater.source.hubs_and_tokens import BadNotifyConfig, NotifyConfig
from headwater.spec import uris
from headwater.transport.access import SignInCredentials
from tests.notify.subscriber import Answer, Subscriber
from tests.support.forward_proxy import ForwardProxy
from tests.support.streams import stream_server

SECRET = "a-s3cret"  # a word that must be found nowhere else


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def far() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def asked(
    url: str,
    proxy: HttpProxy | None,
    *,
    credentials: dict[uris.Origin, SignInCredentials] | None = None,
    authorities: str | None = None,
    objection: str | None = None,
    times: int = 1,
) -> HttpAnswer | HttpFailure:
    """The last answer to so many requests one after another."""

    async def ask() -> HttpAnswer | HttpFailure:
        client = HttpClient(
            lambda _address: objection,
            user_agent="test",
            authorities=authorities,
            proxy_for=lambda _scheme, _host: proxy,
            credentials=credentials,
        )
        try:
            for _ in range(times):
                answer = await client.request("POST", url, AnswerBounds(seconds=30, max_octets=100), body=b"a body")
            return answer
        finally:
            client.close()

    return asyncio.run(ask())


def test_a_proxy_gets_whole_addresses_in_the_clear_and_its_own_password(far: Subscriber) -> None:
    far.answers["/hub"] = lambda _came: Answer(body=b"heard")
    origin = uris.origin(far.url)
    at = ("127.0.0.1", origin.port or 0)
    own = {uris.origin("http://hub.invalid/"): SignInCredentials("http://hub.invalid/", "Bearer a-token")}
    with ForwardProxy({"hub.invalid": at, "other.invalid": at}) as proxy:
        named = read_proxy(proxy.url.replace("http://", "http://ben:p%40ss@"))
        answer = asked("http://hub.invalid/hub?a=b", named, credentials=own)
        assert isinstance(answer, HttpAnswer)
        assert (answer.status, answer.body) == (200, b"heard")
        (head,) = proxy.heads
        assert head.startswith("POST http://hub.invalid/hub?a=b HTTP/1.1\r\nHost: hub.invalid\r\n")
        assert "Proxy-Authorization: Basic YmVuOnBAc3M=" in head
        assert "Authorization: Bearer a-token" in head
        assert isinstance(asked("http://other.invalid/hub", named, credentials=own), HttpAnswer)
        assert "a-token" not in proxy.heads[-1]
        assert far.came[-1].body == b"a body"


def test_what_is_secret_goes_through_a_tunnel(authority: Authority) -> None:
    """Credentials of an origin are within TLS; the proxy's are told to it alone; a connection is used again."""
    made = authority.issue(("DNS:hub.invalid",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    heads: list[bytes] = []

    async def serve() -> HttpAnswer | HttpFailure:
        async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                assert await reader.readexactly(6) == b"a body"
                writer.write(b"HTTP/1.1 204 Heard\r\n\r\n")

        async with stream_server(heard, tls=context) as port:
            return await ask(("127.0.0.1", port))

    async def ask(at: tuple[str, int]) -> HttpAnswer | HttpFailure:
        with ForwardProxy({"hub.invalid": at}) as proxy:
            own = {uris.origin("https://hub.invalid/"): SignInCredentials("https://hub.invalid/", "Bearer a-token")}
            named = read_proxy(proxy.url.replace("http://", "ben:p@"))
            known = str(authority.own.certificate)
            answer = await asyncio.to_thread(
                asked, "https://hub.invalid/hub", named, credentials=own, authorities=known, times=2
            )
            refused = await asyncio.to_thread(asked, "https://hub.invalid/hub", named)
            assert isinstance(refused, HttpFailure)
            assert refused.text.startswith("the certificate is not believed: ")
            assert [head.split("\r\n")[0] for head in proxy.heads] == ["CONNECT hub.invalid:443 HTTP/1.1"] * 2
            assert all("Proxy-Authorization: Basic" in head and "a-token" not in head for head in proxy.heads)
        return answer

    answer = asyncio.run(serve())
    assert isinstance(answer, HttpAnswer), answer
    assert len(heads) == 2
    assert all(b"POST /hub HTTP/1.1" in head and b"Bearer a-token" in head and b"Proxy-" not in head for head in heads)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "a.localhost", "2130706433", "0x7f.1", "10.0.0.1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_that_is_refused_is_not_asked_by_a_proxy_either(scheme: str, host: str) -> None:
    """DST-S12: of a name only the proxy knows where it leads."""
    with ForwardProxy() as proxy:
        answer = asked(f"{scheme}://{host}/", read_proxy(proxy.url), objection="it is too far inside")
        named = uris.origin(f"http://{host}/").host
        assert answer == HttpFailure(f"{named}: it is too far inside", is_final=True, host=named)
        assert proxy.heads == []


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"HTTP/1.1 407 Who\r\n\r\n", "HTTP status 407: give it with user and password"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 3\r\n\r\nbad", "refuses to connect, with HTTP status 502"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "refuses to connect, with HTTP status 503"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer as a proxy does"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, "does not answer as a proxy does"),
        (b"", "does not answer as a proxy does"),
    ],
    ids=["407", "body", "503", "another protocol", "endless head", "closed"],
)
def test_a_tunnel_that_the_proxy_does_not_open(says: bytes, told: str) -> None:
    with ForwardProxy(says=says) as proxy:
        answer = asked("https://hub.invalid/", read_proxy(proxy.url))
    assert isinstance(answer, HttpFailure)
    assert told in answer.text
    assert not answer.is_final


def test_a_proxy_that_is_not_there(far: Subscriber) -> None:
    far.close()
    answer = asked("http://hub.invalid/", read_proxy(far.url))
    assert isinstance(answer, HttpFailure)
    assert "the proxy cannot be asked" in answer.text


@pytest.mark.parametrize(
    "named", ["socks5://ben:{}@h:1080", "https://ben:{}@h", "socks4://h", "http://", "http://ben:{}@h:99999"]
)
def test_a_proxy_of_another_kind_is_refused_without_its_password(named: str) -> None:
    with pytest.raises(UsageFault, match="http://HOST:PORT") as fault:
        read_proxy(named.format(SECRET))
    assert SECRET not in str(fault.value) + repr(read_proxy(f"http://ben:{SECRET}@h"))


def test_a_client_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    own = {
        uris.origin("https://hub.invalid/"): SignInCredentials(
            "https://hub.invalid/", certificate=str(tmp_path / "none.pem")
        )
    }
    with ForwardProxy() as proxy:
        answer = asked("https://hub.invalid/", read_proxy(proxy.url), credentials=own)
    assert isinstance(answer, HttpFailure)


def test_a_publisher_tells_hubs_elsewhere_by_its_proxy() -> None:
    config = NotifyConfig(hubs=("https://hub.example/",), proxy="http://ben:p@proxy.example:3128")
    assert config.proxy_for("https", "hub.example") == HttpProxy(
        "proxy.example", 3_128, b"Proxy-Authorization: Basic YmVuOnA=\r\n"
    )
    assert config.proxy_for("http", "localhost") is config.proxy_for("http", "[::1]") is None
    with pytest.raises(BadNotifyConfig, match=r"notify\.proxy") as fault:
        NotifyConfig(hubs=("https://hub.example/",), proxy=f"socks5://ben:{SECRET}@h")
    assert SECRET not in str(fault.value)
