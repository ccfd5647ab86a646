"""Hubs by TLS: which authorities are believed, and what is said of a certificate that is not."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.engines.certificates import Authority, Certificate
from tools.engines.launch import free_port

from headwater.notify.http_client import AnswerBounds, HttpAnswer, HttpClient, HttpFailure
from headwater.source.config import read_config
from headwater.transport.access import tls_context
from tests.notify.hub_process import TOKEN
from tests.notify.subscriber import Subscriber
from tests.support.program import run_here
from tests.support.serving import Process, request
from tests.support.streams import stream_server
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

USAGE = 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def good(authority: Authority) -> Certificate:
    return authority.issue(("IP:127.0.0.1",), file="good")


@pytest.fixture
def hub(good: Certificate) -> Iterator[Subscriber]:
    one = Subscriber(shown(good))
    yield one
    one.close()


def shown(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def configured(folder: Path, tables: str) -> Path:
    (folder / "files").mkdir()
    config = folder / "source.toml"
    config.write_text(f'state = "state"\nport = {free_port()}\n{tables}[[set]]\nfiles = "files"\n')
    return config


def test_a_source_believes_the_authorities_that_it_is_given(
    tmp_path: Path, authority: Authority, hub: Subscriber
) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.own.certificate.read_bytes())
    table = f'[notify]\nhubs = ["{hub.url}/"]\nauthorities = "ca.pem"\n'
    with Process(str(configured(tmp_path, table))) as server:
        server.ready()
        (tmp_path / "files" / "a.txt").write_text("a")
        hub.wait(lambda: any(b"a.txt" in one.body for one in hub.deliveries("/")))


def test_a_certificate_that_is_renewed_is_read_again(tmp_path: Path, authority: Authority, good: Certificate) -> None:
    """Also under its old name, by a process that has shown the former one."""
    ours, key = tmp_path / "client.pem", str(good.key)
    ours.write_bytes(good.certificate.read_bytes())
    words = (str(authority.own.certificate), str(ours), key)
    first = tls_context(*words)
    assert tls_context(*words) is first
    os.utime(ours, (1e9, 1e9))
    assert tls_context(*words) is not first
    ours.unlink()
    with pytest.raises(OSError, match="client"):
        tls_context(*words)


def test_what_is_wrong_with_the_certificate_of_a_hub_is_told(tmp_path: Path, hub: Subscriber) -> None:
    """HW-NTF-01: in the log not a constant of OpenSSL alone, and at /health the code."""
    table = f'[notify]\nhubs = ["{hub.url}/"]\n'
    with Process(str(configured(tmp_path, table))) as server:
        server.ready()
        until(lambda: b"HW-NTF-01" in request(server.url, "/health").body)
        _, said = server.stop()
    assert "the certificate is not believed: unable to get local issuer" in said


@pytest.mark.parametrize(
    ("names", "days", "why"),
    [
        (("IP:127.0.0.1",), -1, "certificate has expired"),
        (("DNS:elsewhere.invalid",), 30, "IP address mismatch"),
    ],
)
def test_the_reason_is_in_the_failure(authority: Authority, names: tuple[str, ...], days: int, why: str) -> None:
    far = Subscriber(shown(authority.issue(names, file=f"wrong{days}", days=days)))

    async def ask() -> object:
        client = HttpClient(lambda _address: None, user_agent="test", authorities=str(authority.own.certificate))
        try:
            return await client.request("POST", far.url, AnswerBounds(seconds=30), body=b"x")
        finally:
            client.close()

    try:
        failure = asyncio.run(ask())
    finally:
        far.close()
    assert isinstance(failure, HttpFailure)
    assert why in failure.text


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address")
def test_a_hub_may_have_an_ipv6_address_in_place_of_a_name(authority: Authority) -> None:
    """The brackets are none of the address that the certificate has."""
    context = shown(authority.issue(("IP:::1",), file="ipv6"))

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def ask() -> HttpAnswer | HttpFailure:
        client = HttpClient(lambda _address: None, user_agent="test", authorities=str(authority.own.certificate))
        async with stream_server(heard, "::1", context) as port:
            try:
                return await client.request("POST", f"https://[::1]:{port}/", AnswerBounds(seconds=30))
            finally:
                client.close()

    answer = asyncio.run(ask())
    assert isinstance(answer, HttpAnswer), answer
    assert answer.ok


def test_the_hub_of_a_source_is_believed_by_what_it_believes_itself(
    tmp_path: Path, authority: Authority, hub: Subscriber
) -> None:
    """With no `[notify]`, the authorities of `[hub]` hold for the source as well."""
    table = (
        f'[hub]\nlisten = "127.0.0.1:{free_port()}"\nbase_url = "{hub.url}/"\n'
        f'authorities = "{authority.own.certificate}"\n'
    )
    with Process(str(configured(tmp_path, table))) as server:
        server.ready()
        (tmp_path / "files" / "a.txt").write_text("a")
        hub.wait(lambda: any(b"a.txt" in one.body for one in hub.deliveries("/")))


@pytest.mark.parametrize("content", [None, "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
@pytest.mark.parametrize("table", ["hub", "notify", "command"])
def test_authorities_that_cannot_be_used_are_told_at_the_start(tmp_path: Path, table: str, content: str | None) -> None:
    """Each request failed for ever, with words about the connection."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    address = f"127.0.0.1:{free_port()}"
    tables = {
        "hub": f'[hub]\nlisten = "{address}"\nauthorities = "ca.pem"\n',
        "notify": '[notify]\nhubs = ["https://hub.invalid/"]\nauthorities = "ca.pem"\n',
    }
    if table == "command":
        command = ["hub", "--listen", address, "--state", str(tmp_path / "hub"), "--ca", str(file)]
    else:
        command = ["serve", str(configured(tmp_path, tables[table]))]
    status, _, said = run_here(*command)
    assert status == USAGE
    assert str(file).encode() in said


def test_a_relative_file_lies_beside_the_configuration(tmp_path: Path) -> None:
    table = f'[notify]\nhubs = ["https://hub.invalid/"]\ntoken = "{TOKEN}"\nauthorities = "ca.pem"\n'
    notify = read_config(configured(tmp_path, table)).notify
    assert notify is not None
    assert notify.authorities == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("tables", "whom"),
    [
        ("", "this source alone,"),
        (f'token = "{TOKEN}"\n', "this source, and publishers with its token,"),
        ('[notify]\nhubs = ["https://hub.invalid/"]\n', "publishers whose topics name it,"),
        (f'token = "{TOKEN}"\n[notify]\nhubs = ["https://hub.invalid/"]\n', "publishers with its token, or whose"),
    ],
)
def test_whom_the_hub_of_a_source_believes_is_said_as_it_is(tmp_path: Path, tables: str, whom: str) -> None:
    config = configured(tmp_path, f'[hub]\nlisten = "127.0.0.1:{free_port()}"\n{tables}')
    with Process(str(config)) as server:
        server.ready()
        _, said = server.stop()
    assert f"it believes {whom}" in said
