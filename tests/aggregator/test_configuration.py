"""The configuration of a service: keys, units, files of sources, secrets, and what is told of faults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import msgspec
import pytest
from tools import aggregation_page

from headwater.aggregator import configuration
from headwater.aggregator.configuration import (
    OPTION_KEYS,
    AggregatorConfig,
    AlertRule,
    BadAggregation,
    FollowedSource,
    HostLimits,
    PublishRule,
    SinkConfig,
    read_aggregation,
)
from headwater.cli.sync import command as sync_command
from headwater.errors import UsageFault

SOURCE = '[[source]]\nname = "museum"\nurl = "http://museum.example.org"\n'


def read(
    tmp_path: Path, text: str, files: Mapping[str, str] = MappingProxyType({}), *, state: bool = True
) -> AggregatorConfig:
    for name, content in files.items():
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(content)
    path = tmp_path / "aggregate.toml"
    path.write_text(('state = "agg"\n' if state else "") + text)
    return read_aggregation(path)


def only(config: AggregatorConfig) -> FollowedSource:
    (one,) = config.sources
    return one


def test_a_short_file_has_the_usual_values(tmp_path: Path) -> None:
    config = read(tmp_path, SOURCE)
    one = only(config)
    assert (config.state, config.home) == (tmp_path / "agg", tmp_path / "agg" / ".aggregator")
    assert (one.every, one.jitter, one.deadline, one.cron) == (3_600.0, 0.1, 7_200.0, None)
    assert (one.options.concurrency, one.options.deadline_seconds) == (8, 7_200.0)
    assert config.source("museum") == one
    assert config.source("other") is None


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ('every = "5m"', "every", 300.0),
        ("every = 90", "every", 90.0),
        ('jitter = "25%"', "jitter", 0.25),
        ('cron = "30 2 * * 1-5"', "cron", "30 2 * * 1-5"),
        ('window = "22:00-06:00"', "window", "22:00-06:00"),
        ('audit = "weekly"', "audit", 604_800.0),
        ('audit = "never"', "audit", None),
        ('dead_after = "30 days"', "dead_after", 2_592_000.0),
        ('tags = "de"', "tags", ("de",)),
        ('tags = ["de", "museum"]', "tags", ("de", "museum")),
        ("enabled = false", "enabled", False),
        ('contact = "a@example.org"', "contact", "a@example.org"),
    ],
)
def test_keys_of_a_source_are_read_with_their_units(tmp_path: Path, line: str, field: str, value: object) -> None:
    assert getattr(only(read(tmp_path, SOURCE + line)), field) == value


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ('max_delete = "20%"', "max_delete", 0.2),
        ('allow_host = "cdn.example.org"', "allow_hosts", ("cdn.example.org",)),
        ('include = ["*.xml"]', "include", ("*.xml",)),
        ('set = "maps"', "sets", ("maps",)),
        ('timeout = "90s"', "stall_seconds", 90),
        ("timeout = 1.5", "stall_seconds", 2),
        ('deadline = "2h"', "deadline_seconds", 7_200.0),
        ('quota = "1GiB"', "max_total", 1 << 30),
        ('max_total = "20GB"', "max_total", 20_000_000_000),
        ('keep_free = "1GiB"', "keep_free", 1 << 30),
        ('max_size = "500MB"', "largest", 500_000_000),
        ('max_length = "500MB"', "max_length", 500_000_000),
        ('bwlimit = "2M"', "bwlimit", 2 << 20),
        ('bwlimit = "off"', "bwlimit", None),
        ("rate = 5", "rate", 5.0),
        ("concurrency = 4", "concurrency", 4),
        ("delete = false", "delete", False),
        ('token = "geheim"', "authorization", "Bearer geheim"),
        ('header = "X-Key: a:b"', "headers", (("X-Key", "a:b"),)),
        ('prefer = "dumps"', "prefer", "dumps"),
        ('since = "2026-01-01"', "since", "2026-01-01"),
    ],
)
def test_options_of_sync_have_their_names_there(tmp_path: Path, line: str, field: str, value: object) -> None:
    assert getattr(only(read(tmp_path, SOURCE + line)).options, field) == value


def test_every_option_of_sync_is_a_key_with_the_same_unit() -> None:
    """Two tables of the same options would part."""
    of_a_run = {"dry_run", "at", "baseline", "accept_reset", "moved", "repair", "token", "user", "sparql_user"}
    of_a_command = {"follow", "longest", "push", "callback_url", "listen", "also", "quiet", "verbose", "changes_file"}
    of_a_command |= {"hook_command", "as_json"}
    kinds: dict[str, set[str]] = {"share": set(), "octets": set(), "duration": set(), "rate": set()}
    for one in sync_command.params:
        if not isinstance(one, click.Option) or one.name in of_a_run | of_a_command:
            continue
        key = one.opts[0].removeprefix("--").replace("-", "_")
        assert key in OPTION_KEYS or key == "deadline", key
        assert OPTION_KEYS.get(key, "deadline_seconds") == one.name
        if one.type.name in kinds:
            kinds[one.type.name].add(key)
    units: dict[str, set[str]] = {"share": set(), "number": set(), "duration": set(), "rate": set()}
    for key, (told, _) in configuration.UNITS.items():
        units[told.split()[0].rstrip(":")].add(key)
    assert kinds["share"] == units["share"] - {"jitter"}
    assert kinds["octets"] == units["number"] - {"quota"}
    assert kinds["duration"] == units["duration"] - {"audit", "dead_after", "every", "keep_events"}
    assert kinds["rate"] == units["rate"]


KEYS = aggregation_page.keys()


def test_the_file_of_the_reference_has_each_key_and_can_be_read(tmp_path: Path) -> None:
    data = tomllib.loads(KEYS)
    for table, kind, others in (
        (data["source"][0], FollowedSource, {"options", "concurrency", "quota", "token", "user", "password"}),
        (data["host"]["repo.example.org"], HostLimits, set()),
        (data["sink"][0], SinkConfig, set()),
        (data["alert"][0], AlertRule, set()),
        (data, AggregatorConfig, {"path", "hosts", "sinks", "alerts", "publish"}),
    ):
        fields = {one.name for one in msgspec.structs.fields(kind)}
        assert table.keys() - others - {"defaults", "source", "host", "sink", "alert"} == fields - others
    text = "".join(
        line for line in KEYS.splitlines(keepends=True) if not line.startswith(("state", "sources", "token"))
    )
    config = read(tmp_path, text)
    one = only(config)
    for name in ("every", "jitter", "deadline", "dead_after", "enabled"):
        assert getattr(one, name) == getattr(FollowedSource(name="a", url="b"), name), "defaults are shown"
    assert (config.parallel, config.keep_events) == (4, 90 * 86_400.0)
    assert (config.sinks[0].tries, config.sinks[0].batch) == (10, 500)


def test_defaults_hold_where_a_source_says_nothing(tmp_path: Path) -> None:
    text = '[defaults]\nevery = "2h"\nmax_delete = "34%"\ntoken = "of-all"\nbackup_dir = "old"\n'
    config = read(tmp_path, text + SOURCE + 'every = "1h"\n' + SOURCE.replace("museum", "archive") + 'token = "own"')
    museum, archive = config.sources
    assert (museum.every, archive.every) == (3_600.0, 7_200.0)
    assert (museum.options.max_delete, archive.options.max_delete) == (0.34, 0.34)
    assert (museum.options.authorization, archive.options.authorization) == ("Bearer of-all", "Bearer own")
    assert museum.options.backup_dir == str(tmp_path / "old" / "museum")


def test_sources_are_read_from_other_files(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        'sources = ["sources.d/*.toml", "more.csv"]\n' + SOURCE,
        {
            "sources.d/one.toml": 'name = "one"\nurl = "http://one.example.org"\ntoken_file = "one.token"\n',
            "sources.d/one.token": "of-one\n",
            "sources.d/two.toml": '[[source]]\nname = "two"\nurl = "http://two.example.org"\n',
            "more.csv": "name,url,every,tags,sitemap,concurrency\n"
            "three,http://three.example.org,5m,de; fr,true,2\nfour,http://four.example.org,,,,\n",
        },
    )
    assert [one.name for one in config.sources] == ["museum", "one", "two", "three", "four"]
    three = config.source("three")
    assert three is not None
    assert (three.every, three.tags, three.options.sitemap, three.options.concurrency) == (300.0, ("de", "fr"), True, 2)
    one = config.source("one")
    assert one is not None
    assert one.options.authorization == "Bearer of-one"


def test_tables_beside_the_sources_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "psst")
    text = """
parallel = 8
keep_free = "2GB"
listen = "127.0.0.1:8080"
operator_token = "0123456789abcdef"
[host."Repo.Example"]
rate = 10
concurrency = 8
window = "22:00-06:00"
[[sink]]
name = "index"
kind = "webhook"
url = "http://index.example.org/hook"
secret_env = "HOOK_SECRET"
quarantine = ["html", "max:10MB"]
[[alert]]
name = "mail"
kind = "command"
on = ["failing", "stale:2d"]
command = "mail"
[publish]
base_url = "https://agg.example.org"
"""
    config = read(tmp_path, text + SOURCE)
    assert (config.parallel, config.keep_free, config.listen) == (8, 2_000_000_000, "127.0.0.1:8080")
    assert config.hosts == {"repo.example": HostLimits(concurrency=8, rate=10.0, window="22:00-06:00")}
    assert (config.sinks[0].secret, config.sinks[0].quarantine) == ("psst", ("html", "max:10MB"))
    assert config.alerts[0].on == ("failing", "stale:2d")
    assert config.publish is not None
    assert only(config).options.keep_free == 2_000_000_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("evry = 1\n" + SOURCE, "unknown key: evry"),
        ("[defaults]\nevry = 1\n" + SOURCE, "[defaults]: unknown key: evry (did you mean every?)"),
        (SOURCE + "evry = 1", "[[source]] 1 'museum': unknown key: evry (did you mean every?)"),
        (SOURCE + 'every = "soon"', "every: 'soon' is no duration"),
        (SOURCE + "every = 0", "every: expected"),
        (SOURCE + 'jitter = "200%"', "jitter: '200%' is no share"),
        (SOURCE + 'quota = "much"', "quota: 'much' is no number of bytes"),
        (SOURCE + 'cron = "99 * * * *"', "cron: '99 * * * *' is no cron line"),
        (SOURCE + 'window = "25:00-06:00"', "window: '25:00-06:00' is no window"),
        (SOURCE + "concurrency = 0", "concurrency: expected"),
        (SOURCE + 'max_delete = "x"', "max_delete: 'x' is no share"),
        (SOURCE + 'include_type = "pdf"', "'pdf' is no media type"),
        (SOURCE + 'token = "a"\ntoken_env = "B"', "token and token_env exclude each other"),
        (SOURCE + 'token_env = "NOT_SET_ANYWHERE"', "NOT_SET_ANYWHERE: the environment variable is not set"),
        (SOURCE + 'token_file = "none"', "none: the file cannot be read"),
        (SOURCE + 'user = "me"', "user is without a password"),
        (SOURCE + 'header = "novalue"', "header is 'NAME: VALUE'"),
        (SOURCE + SOURCE, "two have the name museum"),
        (SOURCE.replace('"museum"', '"../etc"'), "name: a name has letters"),
        (SOURCE.replace('"museum"', '".aggregator"'), "name: a name has letters"),
        ('[[source]]\nname = "a"\n', "url is missing"),
        ('[[source]]\nurl = "http://a.example.org"\n', "name is missing"),
        ("[source]\nname = 1\n", "source: expected a list, got a table"),
        ('[defaults]\nurl = "http://a"\n', "url is for one source"),
        ('sources = "none.toml"\n', "there is no such file"),
        ("[publish]\nbase = 1\n", "[publish]: unknown key: base"),
        ('[publish]\nlisten = "abc"\n', "[publish]: listen: not an address to listen on: 'abc'"),
        ("[publish]\nset = { sitemp = true }\n", "unknown key: sitemp (did you mean sitemap?)"),
        ("[publish]\nset = { refresh_seconds = inf }\n", "refresh_seconds"),
        ('[publish]\nbase_url = "x"\n', "[publish]: "),
        ("parallel = 0\n", "parallel: expected"),
        ('parallel = "many"\n', "parallel: expected"),
        ('[[sink]]\nname = "a"\n', "[[sink]] 1 'a': the key kind is missing"),
        ('[[sink]]\nname = "a"\nkind = "file"\nbatch = 0\n', "batch: expected"),
        ('[[sink]]\nname = "a"\nkind = "file"\ntries = 10001\n', "tries: expected"),
        ('[[alert]]\nname = "a"\non = "failing"\nkind = "command"\ncommand = " "\n', "command has no words"),
        ('[host."a"]\nrat = 1\n', '[host."a"]: unknown key: rat (did you mean rate?)'),
        ("= 1", "not TOML"),
    ],
)
def test_a_fault_is_told_with_its_place_and_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadAggregation) as caught:
        read(tmp_path, text)
    where = (caught.value.where or "").replace(f"{tmp_path}/aggregate.toml, ", "")
    assert told in f"{where}: {caught.value.what}"
    assert "aggregate.toml" in (caught.value.where or "")


def test_a_state_is_needed(tmp_path: Path) -> None:
    with pytest.raises(BadAggregation, match="state is missing"):
        read(tmp_path, SOURCE, state=False)


def test_all_faults_are_told_where_somebody_asks(tmp_path: Path) -> None:
    path = tmp_path / "aggregate.toml"
    path.write_text('stat = "agg"\n' + SOURCE + "evry = 1\n" + '[[sink]]\nname = "a"\n')
    told: list[UsageFault] = []
    with pytest.raises(BadAggregation, match="the file has 3 faults"):
        read_aggregation(path, told.append)
    assert len(told) == 3


SECRETS = ('token = "s3cr3t"', 'user = "me:s3cr3t"', 'header = "X-Key: s3cr3t"', 'proxy = "http://a:s3cr3t@b:1"')


@pytest.mark.parametrize("line", SECRETS)
def test_secrets_are_never_shown(tmp_path: Path, line: str) -> None:
    shown: list[Any] = [read(tmp_path, SOURCE + line)]
    with pytest.raises(UsageFault) as caught:
        read(tmp_path, SOURCE + line + "\nconcurrency = 1000")
    shown += [caught.value, caught.value.what, caught.value.where]
    assert "s3cr3t" not in f"{shown} {only(shown[0])}"


SOURCE_KEYS = set(configuration.SourceKeys.__struct_fields__)
TABLES: dict[str, tuple[str, set[str]]] = {
    "": ("", {"state", "sources", "listen", "push", "parallel", "keep_free", "keep_events", "source", "host", "other"}),
    "[defaults]": (SOURCE, SOURCE_KEYS),
    "[[source]]": ('name = "museum"\nurl = "http://museum.example.org"', SOURCE_KEYS),
    '[host."a"]': ("", set(HostLimits.__struct_fields__)),
    "[[sink]]": ('name = "a"\nkind = "file"', set(SinkConfig.__struct_fields__)),
    "[[alert]]": ('name = "a"\nkind = "mail"\nmail = "a@b.org"\non = "failing"', set(AlertRule.__struct_fields__)),
    "[publish]": ("", set(PublishRule.__struct_fields__)),
}
HOSTILE = (
    '""', '"/"', '"~no-such-user/x"', r'"\u0000"', r'"a\u001b[2J"', f'"{"x" * 5_000}"', '"1"', '"1e999"', '"nan"',
    '":99999"', '"{"', '"http://[::1"', '"a:b:c"', '"**x"', "nan", "inf", "0", "-1", f"1{'0' * 400}", "true",
    "1979-05-27", "07:32:00", "[]", "[nan]", '[""]', r'["\u0000"]', '["a", 1]', "{ a = 1 }", "[{}]",
)  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_each_key_takes_any_value_or_refuses_it_with_its_place(tmp_path: Path, table: str) -> None:
    sound, keys = TABLES[table]
    path = tmp_path / "aggregate.toml"
    for key in keys | {f"{one}_{end}" for one in configuration.SECRET_KEYS for end in ("file", "env")}:
        for value in HOSTILE:
            lines = [line for line in sound.splitlines() if not line.startswith(f"{key} =")]
            state = "" if (table, key) == ("", "state") else 'state = "agg"'
            path.write_text("\n".join([state, table, *lines, f"{key} = {value}"]))
            with suppress(BadAggregation):
                assert isinstance(read_aggregation(path), AggregatorConfig)
                continue
            with pytest.raises(BadAggregation) as caught:
                read_aggregation(path)
            assert str(caught.value.where).startswith(str(path)), (key, value)


@pytest.mark.parametrize("value", ["[" * 5_000 + "]" * 5_000, f"1{'0' * 5_000}", '"\x00"', '"\xff"'])
def test_what_is_not_toml_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "aggregate.toml"
    path.write_text(f"state = {value}", "latin-1")
    with pytest.raises(BadAggregation, match="not TOML"):
        read_aggregation(path)
