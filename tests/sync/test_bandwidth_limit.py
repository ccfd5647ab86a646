"""`--bwlimit`: how many octets come in a second, over all transfers together."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from headwater import SyncOptions, cli
from headwater.cli.shared_options import Bandwidth
from headwater.errors import Exit, Interrupted, UsageFault
from headwater.transport.access import AddressGuard
from headwater.transport.curl_handles import PAUSE, EasyHandle
from headwater.transport.fetch import Fetch, TransportOptions
from headwater.transport.response import ResponseReceiver
from headwater.transport.scheduler import RateLimit
from headwater.transport.transport import Transport
from tests.support.copying import DONE, tree
from tests.support.fake_source import Site, Source
from tests.support.scripted_server import answer, scripted
from tests.support.waiting import Clock


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("2M", 2 << 20),
        ("2m", 2 << 20),
        ("2MiB/s", 2 << 20),
        ("2MB", 2 << 20),
        ("500k", 500 << 10),
        ("1.5G", 3 << 29),
        (".5M", 1 << 19),
        ("100B", 100),
        ("10", 10 << 10),
        ("off", None),
        ("0", None),
    ],
)
def test_rates_are_said_as_rclone_says_them(text: str, octets: int | None) -> None:
    assert Bandwidth().convert(text, None, None) == octets


@pytest.mark.parametrize("text", ["", "fast", "-1M", "2Mbit/s", "1e6", "0.1b", "2M/min", "99999T", "2 2M", "NaN", "²M"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Bandwidth().convert(text, None, None)


def test_a_program_gives_octets() -> None:
    assert SyncOptions(bwlimit=5).bwlimit == 5
    for wrong in (0, -1, "2M"):
        with pytest.raises(UsageFault):
            SyncOptions(bwlimit=wrong)  # type: ignore[arg-type]


def test_a_limit_holds_a_tenth_of_a_second_and_may_be_overdrawn() -> None:
    limit = RateLimit(1000)
    assert limit.take(50.0, 300)
    assert limit.ready_at == pytest.approx(50.201)
    assert not limit.take(50.19)
    assert limit.take(50.201)
    assert limit.take(90.0, 100)
    assert limit.ready_at == pytest.approx(90.001)
    assert not limit.take(89.0)  # a clock that goes back


def limited(clock: Clock, rate: int, **more: object) -> TransportOptions:
    return TransportOptions(
        octets_per_second=rate,
        monotonic=clock.seconds,
        sleep=clock.sleep,
        stall_timeout_seconds=60,
        connect_timeout_seconds=60,
        **more,  # type: ignore[arg-type]
    )


BODY = os.urandom(300_000)


@pytest.mark.parametrize("rate", [200_000, 1_000_000])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_all_transfers_together_keep_the_limit(tmp_path: Path, rate: int, concurrency: int) -> None:
    clock = Clock()
    with (
        scripted({f"/{n}": answer(BODY) for n in range(6)}) as server,
        Transport(limited(clock, rate, concurrency=concurrency)) as transport,
    ):
        fetches = [Fetch(f"{server.base}/{n}", into=str(tmp_path / str(n))) for n in range(6)]
        assert all(fetched.ok for fetched in transport.many(fetches))
        assert all((tmp_path / str(n)).read_bytes() == BODY for n in range(6))
    took, octets = clock.seconds(), 6 * len(BODY)
    assert (octets - 0.1 * rate - 131_072) / rate <= took <= octets / rate + 1


def test_streams_keep_it_too() -> None:
    clock = Clock()
    with (
        scripted({"/x": answer(BODY * 4)}) as server,
        Transport(limited(clock, 500_000)) as transport,
        transport.stream(Fetch(f"{server.base}/x")) as (_, got),
    ):
        assert b"".join(got) == BODY * 4
    took, octets = clock.seconds(), 4 * len(BODY)
    assert (octets - 50_000 - 131_072) / 500_000 <= took <= octets / 500_000 + 1


def test_a_tight_limit_uses_few_connections(tmp_path: Path) -> None:
    """Else each would get so little that it seemed to stand still."""
    clock = Clock()
    with scripted({f"/{n}": answer(b"x" * 100) for n in range(30)}) as server:
        with Transport(limited(clock, 8192)) as transport:
            assert all(one.ok for one in transport.many(Fetch(f"{server.base}/{n}") for n in range(30)))
        assert server.busiest <= 2


def test_a_wish_to_stop_is_seen_while_transfers_are_paused(tmp_path: Path) -> None:
    clock = Clock()
    options = limited(clock, 10_000, stopped=lambda: clock.seconds() > 5)
    with scripted({"/x": answer(BODY)}) as server, Transport(options) as transport, pytest.raises(Interrupted):
        transport.one(Fetch(f"{server.base}/x", into=str(tmp_path / "x")))
    assert not list(tmp_path.iterdir())


def test_the_command_takes_it(source: Source, site: Site, dest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sync", "--bwlimit", "100M", source.base, str(dest)]) == DONE
    assert len(tree(dest)) == 5
    assert cli.run(["sync", "--bwlimit", "quick", source.base, str(dest)]) == Exit.USAGE
    assert "is no rate: give 2M, 500k" in capsys.readouterr().err


def test_what_is_put_off_for_the_reader_of_a_stream_is_counted_once() -> None:
    """libcurl hands it over once more."""
    counted: list[int] = []
    answers = iter((PAUSE, None))

    class Behind(ResponseReceiver):
        def body(self, chunk: bytes) -> int | None:
            return next(answers)

    def count(_handle: EasyHandle, octets: int) -> bool:
        counted.append(octets)
        return True

    handle = EasyHandle(Behind(), TransportOptions(octets_per_second=1000), AddressGuard(None), count)
    assert [handle._write(b"octets"), handle._write(b"octets")] == [PAUSE, None]
    assert sum(counted) == 6
