"""The configuration file: what it means, and that wrong keys are refused with their path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.publish.link_rules import DescribedRule, UrlRule
from headwater.publish.site import BadSite
from headwater.source.config import BadConfiguration, BadPushConfig, SetConfig, SourceConfig, read_config
from headwater.source.hubs_and_tokens import LOOPBACK, HubConfig
from headwater.source.set_folders import scan_settings
from headwater.spec.writer import Profile

MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def write(folder: Path, text: str) -> Path:
    path = folder / "source.toml"
    path.write_text(text)
    return path


def test_the_example_of_the_manual_is_a_configuration(tmp_path: Path) -> None:
    example = MANUAL.read_text().partition("```toml\n")[2].partition("```")[0]
    assert len(read_config(write(tmp_path, example)).sets) == 2


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = read_config(
        write(
            tmp_path, 'state = "state"\nprofile = "both"\n[[set]]\nfiles = "/abs"\n[[set]]\nname = "b"\nfiles = "b"\n'
        )
    )
    assert config.state == str(tmp_path / "state")
    assert [one.files for one in config.sets] == ["/abs", str(tmp_path / "b")]
    assert config.profile is Profile.BOTH


def test_the_home_of_somebody_unknown_is_a_folder_like_others(tmp_path: Path) -> None:
    config = read_config(write(tmp_path, 'state = "s"\n[[set]]\nfiles = "~no-such-user/f"'))
    assert config.sets[0].files == str(tmp_path / "~no-such-user/f")


def test_the_authority_of_a_cluster_or_an_index_is_relative_to_the_file_too(tmp_path: Path) -> None:
    lines = (
        'state = "state"\ncatalog = "opensearch://a/p?tls=true&ca=ca.pem"\n'
        '[[set]]\nfeed = "dit"\nindex = "https://b:9200/i?ca=other.pem"\n'
    )
    config = read_config(write(tmp_path, lines))
    assert config.catalog == f"opensearch://a/p?tls=true&ca={tmp_path}/ca.pem"
    assert config.sets[0].index == f"https://b:9200/i?ca={tmp_path}/other.pem"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("state = ", "not TOML"),
        ("", "the key state is missing"),
        ('state = "s"', "the key set is missing"),
        ('state = "s"\nset = []', "no set"),
        ('state = "s"\n[hub]\nqqq = 1', "unknown key: qqq; possible are "),
        ('state = "s"\nconfiguration = "c"\n[[set]]\nfiles = "f"', "unknown key: configuration"),
        ('state = "s"\nhots = "h"\n[[set]]\nfiles = "f"', "hots"),
        ('state = "s"\n[[set]]\nfiles = "f"\n[[set]]\nfiles = "f"\nrefesh = 1', "source.toml, [[set]] 2 'files'"),
        ('state = "s"\n[[set]]\nfiles = "f"\nrefresh_second = 1', "(did you mean refresh_seconds?)"),
        ('state = "s"\n[[set]]\nfiles = "f"\nretention = 1', "(did you mean retention_seconds?)"),
        (
            'state = "s"\n[[set]]\nfiles = "f"\n[[set.described]]\ncontents = "c"\nrecord = "r"',
            "described[0]: unknown key: contents (did you mean content?)",
        ),
        (
            'state = "s"\n[[set]]\nfiles = "f"\n[[set.described]]\ncontent = "c"',
            "described[0]: the key record is missing",
        ),
        (
            'state = "s"\n[[set]]\nfiles = "f"\nversions = { keeep = "1 day" }',
            "versions: expected true or false, or text, got a table",
        ),
        ('state = "s"\nset = 3', "set: expected a list, got a whole number"),
        ('state = "s"\nset = [3]', "source.toml, [[set]] 1"),
        ('state = "s"\n[[set]]\nfiles = "f"\nwatch = "yes"', "watch: expected true or false, got text"),
        ('state = "s"\nport = 70000\n[[set]]\nfiles = "f"', "port: expected a whole number <= 65535"),
        ('state = "s"\nport = "x"\n[[set]]\nfiles = "f"', "port: expected a whole number, got text"),
        ('state = "s"\n[[set]]\nfiles = "f"\nmax_delete = 2', "max_delete: expected a number <= 1.0"),
        ('state = "s"\n[[set]]\nfiles = "f"\nmax_delete = "120%"', "max_delete: expected a number <= 1.0"),
        ('state = "s"\n[[set]]\nfiles = "f"\nrescan_seconds = 0', "rescan_seconds: expected a number > 0.0"),
        ('state = "s"\npage_entries = 50001\n[[set]]\nfiles = "f"', "page_entries: expected a whole number <= 50000"),
        ('state = "s"\nprofile = "1.0"\n[[set]]\nfiles = "f"', "profile: invalid enum value '1.0'"),
        ('state = "s"\n[[set]]\nprofile = "rdf"\ndataset = "d"', "profile: invalid enum value 'rdf'"),
        ('state = "s"\n[set]\nfiles = "f"', "set: expected a list, got a table"),
        ('state = "s"\n[[set]]\nfiles = "f"\nversions = "soon"', "versions gives no time: 'soon'"),
        ('state = "s"\n[[set]]\nfiles = "f"\nversions = "20 GB"', "versions gives no time: '20 GB'"),
        ('state = "s"\n[[set]]\nfiles = "f"\nversions = { keep = "soon" }', "versions gives no time: 'soon"),
        ('state = "s"\n[[set]]\nfiles = "f"\nversions = { octets = -1 }', "versions gives no time"),
        ('state = "s"\n[[set]]\nfiles = "f"\nversions = "9999999999999 years"', "versions gives no time"),
        (
            'state = "s"\n[[set]]\nfiles = "f"\nversions = 30',
            "versions: expected true or false, or text, got a whole number",
        ),
        ('state = "s"\n[[set]]\nfiles = "f"\narchive = "1 year"', "archive: expected true or false, got text"),
        (
            'state = "s"\n[[set]]\nfiles = "f"\npatch = "xml"',
            "patch[0]: invalid enum value 'xml'",
        ),
        ('state = "s"\n[[set]]\nfiles = "f"\nretention_seconds = "soon"', "retention_seconds: expected a number"),
        ('state = "s"\n[[set]]\nfiles = "f"\nretention_seconds = "0 d"', "retention_seconds: expected a number > 0"),
        ('state = "s"\n[[set]]\nfiles = "f\\u0000"', "a text has a NUL character: files"),
    ],
)
def test_wrong_configurations(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        read_config(write(tmp_path, text))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("versions = true", "versions = {}"),
        ('versions = "30 days"', 'versions = { keep = "30 days" }'),
        ('versions = "1 year, 20 GB"', 'versions = { keep = "1 year", octets = "20 GB" }'),
        ('versions = ", 20 GB"', 'versions = { octets = "20 GB" }'),
        ('versions = "all"', "versions = true"),
        ('patch = "json"', 'patch = ["json"]'),
        ('include = "*.pdf"', 'include = ["*.pdf"]'),
        ('exclude = "*.tmp"', 'exclude = ["*.tmp"]'),
        ('hashes = "sha-512"', 'hashes = ["sha-512"]'),
        ('mirrors = "http://m.example/{path}"', 'mirrors = ["http://m.example/{path}"]'),
        ('retention_seconds = "30 days"', "retention_seconds = 2592000"),
        ('rescan_seconds = "10 min"', "rescan_seconds = 600"),
        ('max_delete = "50%"', "max_delete = 0.5"),
        ('exclude_folders_with = ".embargo"', 'exclude_folders_with = [".embargo"]'),
        ('archive = true\narchive_kept_seconds = "1 year"', "archive = true\narchive_kept_seconds = 31557600"),
        ('archive = true\narchive_octets = "20 GB"', "archive = true\narchive_octets = 20000000000"),
        ('package_octets = "1 GiB"', "package_octets = 1073741824"),
    ],
)
def test_short_forms_of_values(tmp_path: Path, short: str, long: str) -> None:
    def read(line: str) -> SetConfig:
        config = read_config(write(tmp_path, f'state = "s"\n[[set]]\nfiles = "f"\n{line}\n'))
        assert config.versions_seconds == 604_800
        return config.sets[0]

    one, other = read(short), read(long)
    assert one.kept_versions == other.kept_versions
    assert one.settings() == other.settings()
    for name in ("include", "exclude", "exclude_folders_with", "hashes", "rescan_seconds", "max_delete"):
        assert getattr(one, name) == getattr(other, name)
    assert bool(one.versions) == bool(other.versions)


def test_units_of_the_whole_source(tmp_path: Path) -> None:
    lines = 'state = "s"\nversions_seconds = "2 weeks"\nversions_octets = "5 GB"\n[[set]]\nfiles = "f"\n'
    lines += '[notify]\nhubs = "https://hub.example/"\nbatch_seconds = "1 min"\n'
    config = read_config(write(tmp_path, lines))
    assert (config.versions_seconds, config.versions_octets) == (1_209_600, 5_000_000_000)
    assert config.notify is not None
    assert (config.notify.hubs, config.notify.batch_seconds) == (("https://hub.example/",), 60)


@pytest.mark.parametrize("line", ['name = "Bad"', 'describedby = "nowhere"', 'resource_base = "ftp://x"'])
def test_wrong_names_are_told_when_the_file_is_read(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSite, match=r"source.toml, \[\[set\]\] 1"):
        read_config(write(tmp_path, f'state = "s"\n[[set]]\nfiles = "f"\n{line}\n'))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('files = "f"\nfeed = "events"', "either files or a feed"),
        ("", "either files or a feed"),
        ('files = "f"\ncopy = "c"', "or a copy"),
        ('copy = "c"\nhashes = ["sha-512"]', "hashes belongs to a set with a folder"),
        ('files = "f"\ncopy_set = "s"', "copy_set belongs to a set with a copy"),
        ('files = "f"\ntoken = "0123456789abcdef"', "token belongs to a push set"),
        ('files = "f"\npoll_seconds = 3', "poll_seconds belongs to a push set"),
        ('feed = "events"\ninclude = ["*.pdf"]', "include belongs to a set with a folder"),
        ('feed = "dit"\nwindow = "22:00-06:00"', "window belongs to a set with feed"),
        ('feed = "dit"\nhashes = ["sha-512"]', "hashes belongs to a set with a folder"),
        ('feed = "events"\nindex = "http://h:9200/i"', 'index belongs to a set with feed = "dit"'),
    ],
)
def test_settings_that_contradict_each_other_are_told_with_the_set(tmp_path: Path, lines: str, words: str) -> None:
    first = 'state = "s"\n[[set]]\nname = "a"\nfiles = "a"\n'
    with pytest.raises(BadPushConfig) as refused:
        read_config(write(tmp_path, f'{first}[[set]]\nname = "b"\n{lines}\n'))
    assert words in refused.value.what
    assert str(refused.value.where).endswith("source.toml, [[set]] 2 'b'")


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(BadConfiguration):
            read_config(path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b'state = "\xff"')
    with pytest.raises(BadConfiguration):
        read_config(path)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (False, "public addresses"),
        (True, "any address"),
        (("10.0.0.0/8", "::1"), "public addresses and 10.0.0.0/8, ::1"),
        (LOOPBACK, "public addresses and this machine"),
    ],
)
def test_whom_a_hub_delivers_to_is_said(allowed: bool | tuple[str, ...], words: str) -> None:
    assert HubConfig(allow_private=allowed).receivers == words


VALUES: dict[str, object] = {
    "name": "other",
    "title": "A title",
    "describedby": "http://example.org/about",
    "include": ("*.pdf",),
    "exclude": ("*.tmp",),
    "hidden": True,
    "types": {"*.pdf": "text/x-pdf"},
    "types_file": "/dev/null",
    "hashes": ("sha-512",),
    "canonical_hash": "beside",
    "settle_seconds": 9.0,
    "max_delete": 0.75,
    "refresh_changes": 17,
    "refresh_seconds": 17.0,
    "renew_seconds": 17.0,
    "segment_seconds": 17.0,
    "rotation_seconds": 17.0,
    "retention_seconds": 17.0,
    "resource_base": "http://files.example/",
    "on_demand": False,
    "dump": True,
    "dump_share": 0.5,
    "dump_seconds": 17.0,
    "change_dump": True,
    "change_dump_seconds": 17.0,
    "patch": ("json",),
    "archive": True,
    "archive_seconds": 17.0,
    "archive_kept_seconds": 17.0,
    "archive_octets": 17,
    "archive_documents": 17,
    "versions": True,
    "package_entries": 17,
    "package_octets": 17,
    "mirrors": ("http://mirror.example/{path}",),
    "variants": ("pdf", "html"),
    "described": (DescribedRule(content="{stem}.pdf", record="{stem}.xml"),),
    "links": (UrlRule(rel="license", href="http://example.org/license"),),
    "classic": True,
    "classic_entries": 17,
    "sitemap": True,
    "licence": "http://example.org/licence",
}
"""Keys of a set, each with a value that is not its default."""
READERS = {
    "watch": "the worker of a set with a folder",
    "exclude_file": "the selection of a folder, which reads it again",
    "exclude_folders_with": "walks of a folder, and whoever serves it",
    "rescan_seconds": "the worker of a set with a folder",
    "poll_seconds": "the reader of an index",
    "pair_seconds": "nothing any more: it is taken from older configurations",
    "profile": "the kind of the set",
    "files": "the intake of a folder",
    "feed": "push sets",
    "copy": "the intake of a copy",
    "copy_set": "the intake of a copy",
    "resource_root": "contents of push sets",
    "token": "access tokens",
    "token_file": "access tokens",
    "token_env": "access tokens",
    "resource_sets": "targets of push",
    "index": "the reader of an index",
    "dataset": "the intake of a dataset",
    "lenient": "the intake of a dataset",
    "description": "the description of a dataset",
    "creator": "the description of a dataset",
    "publisher": "the description of a dataset",
    "identifier": "the description of a dataset",
    "endpoint": "the description of a dataset",
    "language": "the description of a dataset",
    "sparql": "the intake of a dataset",
    "sparql_authorization_env": "the intake of a dataset",
    "oxigraph": "the intake of a dataset",
    "syntax": "the intake of a dataset",
    "base_iri": "the intake of a dataset",
    "blank_nodes": "the intake of a dataset",
    "genid": "the intake of a dataset",
    "dataset_seconds": "the worker of a dataset",
    "may_be_empty": "the intake of a dataset",
    "url": "the harvester of a repository",
    "window": "the poll of a repository",
    "compare_seconds": "the harvester of a repository",
    "prefixes": "the harvester of OAI-PMH",
    "sets": "the harvester of OAI-PMH",
    "record": "the harvester of OAI-PMH",
    "content": "the harvester of OAI-PMH",
    "contact": "the harvester of DSpace",
    "bundles": "the harvester of DSpace",
    "user": "the harvester of DSpace",
    "password_env": "the harvester of DSpace",
    "oai": "the answers to OAI-PMH",
    "oai_admin": "the answers to OAI-PMH",
}
"""Keys that neither the publisher nor the scan reads, and who does: tests of these hold them."""


@pytest.mark.parametrize("key", [one.encode_name for one in msgspec.structs.fields(SetConfig)])
def test_every_key_of_a_set_has_an_effect(tmp_path: Path, key: str) -> None:
    """The publisher's settings, the scan or what is kept differ by it; no key is read and dropped."""

    def effects(**more: Any) -> list[object]:
        kind: dict[str, Any] = {"profile": "rdf-dataset", "dataset": "d"} if key == "licence" else {"files": "f"}
        one = SetConfig(**{"name": "set", **kind, **more})
        config = SourceConfig(state=str(tmp_path), sets=(one,), base_url="http://source.example")
        site = config.site()
        found: list[object] = [site.sets, config.kept_versions]
        if one.files:
            scan = scan_settings(one, site, config)
            found += [scan.selection.takes(name) for name in (b"a.pdf", b"a.tmp", b".hidden")]
            found += [getattr(scan, field.name) for field in msgspec.structs.fields(type(scan))[2:]]
        return found

    assert (key in VALUES) != (key in READERS)
    if key in VALUES:
        assert effects(**{key: VALUES[key]}) != effects()
