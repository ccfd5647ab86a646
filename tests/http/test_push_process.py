"""`headwater serve` with a set that has no folder: fed by HTTP, killed, restarted; its resources served from a root."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.http.ingest import bearer_token
from headwater.source.config import BadPushConfig, SetConfig, read_config
from headwater.source.hubs_and_tokens import BadToken
from tests.support.published import look
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(10)

TOKEN = "s3cret-" * 4


def post(url: str, target: str, *lines: object) -> int:
    body = b"".join(json.dumps(one).encode() + b"\n" for one in lines)
    return request(url, target, "POST", {"authorization": f"Bearer {TOKEN}"}, body).status


def fetch(url: str) -> bytes | None:
    head, _, target = url.partition("//")[2].partition("/")
    answer = request(f"http://{head}", "/" + target)
    return answer.body if answer.status == 200 else None


def test_a_fed_set_is_served_killed_and_served_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a b.txt").write_text("hello")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "tokens").write_text(f"{'x' * 20}\n{TOKEN}\n")
    config = tmp_path / "source.toml"
    config.write_text(
        'state = "state"\n[[set]]\nname = "s"\nfeed = "events"\ntoken_file = "tokens"\nresource_root = "root"\n'
        '[[set]]\nname = "waiting"\nfeed = "dit"\ntoken_file = "tokens"\n'
    )
    with Process(str(config), "--port", "0", "--quiet") as process:
        url = process.listening()
        port = url.rpartition(":")[2]
        assert (
            post(url, "/s/changes", {"path": "a b.txt", "length": 5}, {"path": "gone.txt"}, {"path": "link.txt"}) == 200
        )
        until(lambda: request(url, "/s/capabilitylist.xml").status == 200, what="the publication")
        until(lambda: request(url, "/.well-known/resourcesync").status == 200, what="the set that waits hides no other")
        answer = request(url, "/s/resources/a%20b.txt")
        assert (answer.status, answer.body) == (200, b"hello")
        for path in ("gone.txt", "link.txt", "other.txt", "../secret.txt", "..%2fsecret.txt"):
            assert request(url, f"/s/resources/{path}").status == 404
        process.kill()
    with Process(str(config), "--port", port, "--quiet") as process:
        url = process.listening()
        assert post(url, "/s/changes", {"path": "a b.txt", "change": "deleted"}) == 200
        until(lambda: b"deleted" in request(url, "/s/changelist/open.xml").body, what="the deletion")
        seen = look(fetch, "s", base=url)
        assert set(seen.state) == {f"{url}/s/resources/gone.txt", f"{url}/s/resources/link.txt"}
        status, said = process.stop()
    assert status == 0
    assert "the push set s" in said
    assert "Traceback" not in said
    assert TOKEN not in said
    shutil.rmtree(tmp_path / "state")


WRONG = [
    ({}, BadPushConfig),
    ({"files": "f", "feed": "events"}, BadPushConfig),
    ({"files": "f", "token": TOKEN}, BadPushConfig),
    ({"files": "f", "index": "http://h/i"}, BadPushConfig),
    ({"feed": "events", "index": "http://h/i"}, BadPushConfig),
]


@pytest.mark.parametrize(("options", "fault"), WRONG, ids=str)
def test_a_set_has_a_folder_or_a_feed(options: dict[str, str], fault: type[Exception]) -> None:
    with pytest.raises(fault):
        SetConfig(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "token", ["short", "x" * 15, "x" * 1_001, "with spaces in it, and long", "ünïcödé-and-long-enough", "a\nb" * 9]
)
def test_tokens_that_are_none(token: str) -> None:
    with pytest.raises(BadToken):
        SetConfig(feed="events", token=token).tokens()


@pytest.mark.parametrize("octets", [16, 1_000])
def test_the_shortest_and_the_longest_token_are_tokens(octets: int) -> None:
    tokens = SetConfig(feed="events", token="x" * octets).tokens()
    assert tokens.accepts(b"x" * octets)
    assert not tokens.accepts(b"x" * (octets - 1))
    assert bearer_token([(b"authorization", b"Bearer " + b"x" * octets)]) == b"x" * octets


def test_tokens_that_are_not_there(tmp_path: Path) -> None:
    file = str(tmp_path / "none")
    told = {"token_file": (file, "cannot be read: No such file"), "token_env": ("HEADWATER_TEST_NONE", "not set, or")}
    for option, (value, what) in told.items():
        with pytest.raises(BadToken, match=what) as fault:
            SetConfig(feed="events", **{option: value}).tokens({})  # type: ignore[arg-type]
        assert fault.value.where == value
        assert f"export {value}=" in fault.value.todo or "one secret a line" in fault.value.todo


@pytest.mark.parametrize("content", ["", " \n\n"])
def test_a_file_of_tokens_without_a_token_is_refused(content: str, tmp_path: Path) -> None:
    """Else everybody would be refused, or a hub would take its publishers for strangers, and nobody be told."""
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(BadToken, match="is empty") as fault:
        SetConfig(feed="events", token_file=str(tmp_path / "tokens")).tokens({})
    assert fault.value.where == str(tmp_path / "tokens")
    assert "one secret a line" in fault.value.todo


def test_what_is_wrong_with_a_token_is_told_without_it(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a-short-one\n")
    with pytest.raises(BadToken, match="11 characters, and 16 to 1,000 are needed") as fault:
        SetConfig(feed="events", token_file=str(tmp_path / "tokens")).tokens({})
    assert fault.value.where == str(tmp_path / "tokens")
    with pytest.raises(BadToken, match="a space, or a character") as fault:
        SetConfig(feed="events", token_env="NAME").tokens({"NAME": "a-token with-a-space"})
    assert "with-a-space" not in str(fault.value) + fault.value.todo


def test_the_variable_without_a_token_is_named() -> None:
    assert SetConfig(feed="events", token_env="NAME").tokens({"NAME": TOKEN}).accepts(TOKEN.encode())
    assert SetConfig(feed="events").tokens({}).is_empty


def test_paths_of_fed_sets_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('state = "s"\n[[set]]\nfeed = "dit"\nresource_root = "r"\ntoken_file = "t"\n')
    (one,) = read_config(path).sets
    assert (one.files, one.root, one.token_file) == ("", str(tmp_path / "r"), str(tmp_path / "t"))


def test_a_source_at_work_has_its_state_for_itself(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'state = "state"\n[[set]]\nname = "s"\nfeed = "events"\ntoken = "{TOKEN}"\n')
    (tmp_path / "events").write_bytes(b'{"path":"a"}\n')
    command = ["ingest", "events", str(tmp_path / "events"), "--set", "s", "--config", str(config)]
    with Process(str(config), "--port", "0", "--quiet") as process:
        process.listening()
        assert run(command) == 6
    assert run(command) == 0


def test_an_index_that_is_not_there_holds_up_nothing(tmp_path: Path) -> None:
    """It is shown as a failure, tried again, and what comes by HTTP is published all the same."""
    config = tmp_path / "c.toml"
    config.write_text(
        f'state = "state"\n[[set]]\nname = "s"\nfeed = "dit"\ntoken = "{TOKEN}"\nindex = "http://127.0.0.1:9/nothing"\n'
    )
    with Process(str(config), "--port", "0", "--quiet") as process:
        url = process.listening()
        assert post(url, "/s/changes", {"path": "a"}) == 200
        until(lambda: b"<url>" in request(url, "/s/changelist/open.xml").body, what="what came by HTTP")

        def failing() -> bool:
            (one,) = json.loads(request(url, "/health").body)["sets"]
            return bool(one["failures"]) and one["error_code"] == "HW-CLU-02"

        until(failing, what="the failure in the health report")
        assert post(url, "/s/changes", {"path": "b"}) == 200
        until(lambda: request(url, "/s/changelist/open.xml").body.count(b"<url>") == 2, what="the second")
        status, said = process.stop()
    assert status == 0
    assert "cannot be brought up to date" in said
    assert "Traceback" not in said


def test_several_processes_take_announcements_for_one_set(tmp_path: Path) -> None:
    """Each line once and every number once, whichever process a request comes to."""
    config = tmp_path / "c.toml"
    config.write_text(f'state = "state"\n[[set]]\nname = "s"\nfeed = "events"\ntoken = "{TOKEN}"\n')
    with Process(str(config), "--port", "0", "--quiet", "--workers", "2") as process:
        url = process.listening()
        seqs: list[int] = []

        def announce(who: int) -> None:
            for number in range(20):
                body = b'{"path":"%d-%d"}\n{"path":"shared","change":"updated"}\n' % (who, number)
                answer = request(url, "/s/changes", "POST", {"authorization": f"Bearer {TOKEN}"}, body)
                seqs.extend(one["seq"] for one in json.loads(answer.body)["results"])

        threads = [threading.Thread(target=announce, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(seqs) == list(range(1, 121))
        until(lambda: request(url, "/s/changelist/open.xml").body.count(b"<url>") == 120, what="all of them")
        process.stop()
