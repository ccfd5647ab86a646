"""What starts the engines decides alone: which Java, which cache, which file, which folder is shut."""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tools.engines import artifacts, java, plugins, unprivileged
from tools.engines.engine import Engine
from tools.engines.errors import Unavailable
from tools.engines.launch import GIVEN, PORTS, Node, class_archive, data_folder, free_port, order, prepare


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="25.0.3"\nJAVA_VERSION_DATE="2026-04-21"\n', 25),
        ('JAVA_VERSION="21"\n', 21),
        ('JAVA_VERSION="1.8.0_392"\n', 8),
        ('JAVA_RUNTIME_VERSION="25.0.3+9-LTS"\n', None),
        ("", None),
    ],
)
def test_a_release_file_tells_its_java(text: str, release: int | None) -> None:
    assert java.feature(text) == release


@pytest.mark.parametrize(
    ("releases", "named", "chosen"),
    [
        ([17, 25, 21], None, 21),
        ([17, 25, 21], 25, 25),
        ([17, 25], 17, 25),
        ([17], 17, None),
        ([], None, None),
    ],
    ids=["the oldest that will do", "the one that was named", "the named one is too old", "all too old", "none"],
)
def test_a_java_is_chosen(releases: list[int], named: int | None, chosen: int | None) -> None:
    found = [java.Java(Path(f"/jdk-{release}"), release) for release in releases]
    took = java.choose(found, 21, Path(f"/jdk-{named}") if named else None)
    assert (took.release if took else None) == chosen


@pytest.fixture
def open_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as reachable, though pytest's own folders are shut to other users."""
    monkeypatch.setattr(unprivileged, "account", lambda: None)
    return tmp_path


def jdk(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    return folder


def test_a_java_is_found_beside_an_older_one_and_by_its_program(open_path: Path) -> None:
    old, new, third = (jdk(open_path / name, f"{name}.0.1") for name in ("17", "23", "22"))
    places = [str(open_path / "1*"), str(open_path / "23")]
    assert java.find(21, {"JAVA_HOME": str(old), "PATH": ""}, places).home == new
    assert java.find(21, {"PATH": str(third / "bin")}, places).home == third


def test_a_missing_java_is_said_with_what_was_found_and_what_to_install(open_path: Path) -> None:
    old = jdk(open_path / "old", "17.0.15")
    with pytest.raises(Unavailable, match=f"Java 21 or later is missing .*17 in {re.escape(str(old))}.*JAVA_HOME"):
        java.find(21, {"PATH": ""}, [str(old)])
    with pytest.raises(Unavailable, match="no Java at all"):
        java.find(21, {"PATH": ""}, [])


def test_the_list_pins_each_engine_by_coordinates_and_digest() -> None:
    pinned = artifacts.pinned()
    assert set(pinned) == {name + more for name in ("opensearch", "elasticsearch") for more in ("", "-secured")}
    for artifact in pinned.values():
        for part in (artifact, *artifact.plugins):
            assert re.fullmatch(r"[\w.-]+:[\w.-]+:\d+\.\d+\.\d+(\.\d+)?:(zip|jar)", part.coordinates)
            assert re.fullmatch(r"[0-9a-f]{64}", part.sha256)
    assert "//" not in artifacts.LIST.read_text()


def test_another_plugin_is_another_engine() -> None:
    one = artifacts.Artifact("g:a:1.0.0:zip", "a" * 64, "engine", 21)
    folders = {one.folder, *(replace(one, plugins=(artifacts.Part("p", digest),)).folder for digest in "bc")}
    assert len(folders) == 3


def test_a_plugin_lies_where_the_engine_looks_for_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "plugin.zip", "w") as archive:
        archive.writestr("plugin-descriptor.properties", "name=x\nextended.plugins=absent\nversion=1\n")
        archive.writestr("config/roles.yml", "")
    (tmp_path / "library.jar").write_bytes(b"x")
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    plugins.add_security(home, [tmp_path / "plugin.zip", tmp_path / "library.jar"])
    place = home / "plugins" / "opensearch-security"
    assert (place / "library.jar").exists()
    assert (home / "config" / "opensearch-security" / "roles.yml").exists()
    assert (place / "plugin-descriptor.properties").read_text() == "name=x\nversion=1\n"


@pytest.mark.parametrize(
    ("environ", "uid", "folder"),
    [
        ({"HEADWATER_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, 0, "/a"),
        ({"HEADWATER_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, 1000, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/root"}, 0, "/var/cache/headwater"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, 1000, "/b/headwater"),
        ({"HOME": "/c"}, 1000, "/c/.cache/headwater"),
    ],
)
def test_the_cache_lies_where_an_engine_can_read_it(environ: dict[str, str], uid: int, folder: str) -> None:
    assert artifacts.cache(environ, uid) == Path(folder)


def test_a_file_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "engine.zip"
    archive.write_bytes(b"something else")
    digest = hashlib.sha256(b"something else").hexdigest()
    artifacts.check(archive, digest)
    with pytest.raises(Unavailable, match=f"its SHA-256 is {digest}"):
        artifacts.check(archive, "0" * 64)


def test_an_archive_is_unpacked_readable_for_all_whatever_the_umask(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "engine.zip", "w") as archive:
        archive.writestr("engine-1/", b"")
        for name, mode in (("engine-1/bin/engine", 0o100744), ("engine-1/lib/a.jar", 0o100600)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, b"x")
    before = os.umask(0o077)
    try:
        top = artifacts.unpack(tmp_path / "engine.zip", tmp_path / "into")
    finally:
        os.umask(before)
    modes = {str(path.relative_to(top)): path.stat().st_mode & 0o777 for path in [top, *top.rglob("*")]}
    assert modes == {".": 0o755, "bin": 0o755, "bin/engine": 0o755, "lib": 0o755, "lib/a.jar": 0o644}


def test_the_folder_that_shuts_an_unprivileged_user_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unprivileged, "account", lambda: (65534, 65534))
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        above = unprivileged.unreachable(top)
        top.chmod(0o711)
        (top / "shut").mkdir(mode=0o700)
        assert unprivileged.unreachable(top / "shut" / "below") == (above or top / "shut")
        (top / "shut").chmod(0o711)
        assert unprivileged.unreachable(top / "shut" / "below") == above


def forget(port: int) -> None:
    """As if this process had never given the port."""
    held = GIVEN.pop(port)
    if held >= 0:
        os.close(held)


def test_a_port_that_is_listened_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    assert free in PORTS
    forget(free)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free))
        taken.listen()
        monkeypatch.setattr("tools.engines.launch.random.sample", lambda ports, _: [free, *ports[:50]])
        assert free_port() != free


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port()
    monkeypatch.setattr("tools.engines.launch.random.sample", lambda ports, _: [first, *ports[:50]])
    assert free_port() != first


@pytest.mark.skipif(sys.platform != "linux", reason="told by a name of Linux's own")
def test_a_port_that_another_process_was_given_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may be down for a while: a test that starts it again must find its port free."""
    code = "from tools.engines.launch import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        given = int(other.stdout.readline())
        monkeypatch.setattr("tools.engines.launch.random.sample", lambda ports, _: [given, *ports[:50]])
        assert free_port() != given
        other.communicate("\n")
    assert free_port() == given, "its end gives it back"


def ordered(tmp_path: Path, name: str = "opensearch", *, quick: bool, **more: bool) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a node of an engine that is unpacked, more or less, in `home`."""
    home = tmp_path / "home"
    (home / "agent").mkdir(parents=True, exist_ok=True)
    (home / "agent" / "opensearch-agent-bootstrap-1.jar").touch()
    node = Node(name, home, tmp_path, Path("/folder"), Path("/data"), quick)
    made = order(node, {"a": "b"}, ["-Xmx1g"], **more)
    command, environment = made["command"], made["environment"]
    assert isinstance(command, list)
    assert isinstance(environment, dict)
    return command, environment


@pytest.mark.parametrize(
    ("settings", "alone"), [({}, True), ({"a": "b"}, True), ({"discovery.seed_hosts": "127.0.0.1:9"}, False)]
)
def test_a_node_that_is_told_of_no_others_looks_for_none(settings: dict[str, str], alone: bool) -> None:
    node = Node("opensearch", Path("/home"), Path("/jdk"), Path("/folder"), Path("/data"), quick=False)
    command = order(node, settings, ["-Xmx1g"])["command"]
    assert isinstance(command, list)
    assert ("-Ediscovery.type=single-node" in command) is alone
    assert all(f"-E{key}={value}" in command for key, value in settings.items())


def test_a_quick_start_passes_by_the_script_and_another_does_not(tmp_path: Path) -> None:
    """Both are passed the options for Java and the settings."""
    (tmp_path / "release").touch()
    command, environment = ordered(tmp_path, quick=False)
    assert command[0] == str(tmp_path / "home" / "bin" / "opensearch")
    assert environment["OPENSEARCH_JAVA_OPTS"] == "-Xmx1g"
    quick, _ = ordered(tmp_path, quick=True)
    assert quick[0] == str(tmp_path / "bin" / "java")
    assert quick.index("-Xmx1g") < quick.index("org.opensearch.bootstrap.OpenSearch") < quick.index("-Ea=b")
    assert "-Ea=b" in command


@pytest.mark.parametrize("name", ["opensearch", "elasticsearch"])
def test_classes_are_taken_from_the_archive_that_is_there(tmp_path: Path, name: str) -> None:
    """Of this engine and this Java; with no archive, and when one is made, nothing is taken from any."""

    def options(**more: bool) -> str:
        command, environment = ordered(tmp_path, name, quick=True, **more)
        return " ".join((*command, environment["CLI_JAVA_OPTS"]))

    (tmp_path / "release").write_text("a Java")
    archive = class_archive(tmp_path / "home", tmp_path)
    assert "Archive" not in options()
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in options()
    assert "SharedArchiveFile" not in options(makes_archive=True)
    assert "-XX:ArchiveClassesAtExit=/folder/" in options(makes_archive=True)
    (tmp_path / "release").write_text("another Java")
    assert "Archive" not in options()


def test_data_lie_in_memory_where_there_is_room(open_path: Path) -> None:
    memory, nodes = open_path / "memory", [open_path / f"node{number}" for number in range(4)]
    for folder in (memory, *nodes):
        folder.mkdir()
    inside = data_folder(nodes[0], quick=True, memory=memory, room=1)
    assert inside.parent == memory
    assert inside.name.startswith("node0-")
    assert data_folder(nodes[1], quick=False, memory=memory, room=1) == nodes[1] / "data"
    assert data_folder(nodes[2], quick=True, memory=memory, room=1 << 62) == nodes[2] / "data"
    assert data_folder(nodes[3], quick=True, memory=open_path / "absent", room=1) == nodes[3] / "data"
    assert (nodes[3] / "data").is_dir()


def test_a_home_has_few_modules_and_all_plugins(open_path: Path) -> None:
    home = open_path / "home"
    for part in ("config", "lib", "plugins/security", "modules/transport-netty4", "modules/reindex"):
        (home / part).mkdir(parents=True)
    (home / "config" / "jvm.options").write_text("-XX:+UseG1GC\n-Xlog:gc:file=logs/gc.log\n-Xss1m\n")
    folders = [prepare("opensearch", home, quick=quick) for quick in (True, False)]
    try:
        assert [path.name for path in (folders[0] / "home" / "modules").iterdir()] == ["transport-netty4"]
        assert (folders[0] / "home" / "plugins" / "security").is_dir()
        options = [(folder / "config" / "jvm.options").read_text() for folder in folders]
        assert options == ["-Xss1m\n", "-XX:+UseG1GC\n-Xss1m\n"]
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(Unavailable, match="there are opensearch, elasticsearch"):
        Engine("solr")
