"""What a node is started with: its ports, its folder, its command and environment.

There are two ways. As an operator's node it is started by its own script, with options for Java. As a test wants it, a
start takes a quarter of the processor time: less is compiled, most classes come from an archive that an earlier start
has left, and OpenSearch is bare of what no test asks for: most modules, the agent that watches what
its plugins may open, the script, which runs Java five times before it runs the engine. And its data lie in memory.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.engines.errors import EngineFailed, Unavailable
from tools.engines.unprivileged import account, hand_over, unreachable

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java compiles less well, and collects garbage in the thread that is in want of memory: there are no idle cores."""

OPENSEARCH_NEEDS = (
    *("-Xss1m", "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8", "-Djna.nosys=true"),
    *("-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true", "-Dio.netty.recycler.maxCapacityPerThread=0"),
    *("-Dio.netty.allocator.numDirectArenas=0", "-Dorg.apache.lucene.store.MMapDirectory.sharedArenaMaxPermits=1"),
    *("-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true", "-Djava.locale.providers=SPI,CLDR"),
    *("-Dopensearch.distribution.type=zip", "-Dopensearch.bundled_jdk=false"),
)
"""What its script passes to Java and what it does not do without."""

MODULES = {"transport-netty4", "ingest-common", "lang-painless"}
"""The network, processors of pipelines, and what those stand on."""

PORTS = range(15000, 32000)
"""Below the ephemeral ports of Linux: no outgoing connection takes the port of a node that is stopped for a while."""


@dataclass(frozen=True)
class Flavour:
    """What one engine names otherwise than another."""

    prefix: str
    electors: str
    settings: Mapping[str, str]


FLAVOURS = {
    "opensearch": Flavour("OPENSEARCH", "cluster.initial_cluster_manager_nodes", {}),
    "elasticsearch": Flavour("ES", "cluster.initial_master_nodes", {"xpack.security.enabled": "false"}),
}
EVERYWHERE = {"network.host": "127.0.0.1", "cluster.routing.allocation.disk.threshold_enabled": "false"}
ALONE = {"discovery.type": "single-node"}
"""For a node that is told of no others: else it would look for some on this machine, and join them."""

NONE: Mapping[str, str] = MappingProxyType({})
MEMORY = Path("/dev/shm")
"""Files here are in memory, on Linux: they outlive a process that is killed, and nobody waits for a disk to sync."""
ROOM = 2 << 30
"""So many octets must be free there: ten times what the nodes of a test run hold."""

GIVEN: dict[int, int] = {}
"""Ports that this process has given, and the descriptors by which others see it; their servers may be down just now."""


@dataclass(frozen=True)
class Node:
    """One node: its engine, where that is unpacked, its Java, and its own folders; `quick` as a test wants it."""

    name: str
    home: Path
    java_home: Path
    folder: Path
    data: Path
    quick: bool

    @property
    def archive(self) -> Path:
        """Where the classes are kept that its quick starts load."""
        return class_archive(self.home, self.java_home)

    @property
    def archive_made(self) -> Path:
        """Where a node that ends in order leaves those classes, when it is told to."""
        return self.folder / "tmp" / "classes.jsa"


def class_archive(home: Path, java_home: Path) -> Path:
    """Where classes are kept, ready for quick starts of an engine: by the Java, and by how it is started."""
    java = (java_home / "release").read_bytes() + str(java_home).encode()
    digest = hashlib.sha256(java + repr((QUICK_START, OPENSEARCH_NEEDS)).encode()).hexdigest()
    return home.with_name(f"{home.name}-{digest[:12]}.jsa")


def order(
    node: Node, settings: Mapping[str, str], options: Sequence[str], *, makes_archive: bool = False
) -> dict[str, object]:
    """What the guard is to start: the engine, with settings of its own and of ours, and with options for Java."""
    flavour = FLAVOURS[node.name]
    folder = node.folder
    all_settings = {
        "node.name": node.name,
        **EVERYWHERE,
        **({} if "discovery.seed_hosts" in settings else ALONE),
        **flavour.settings,
        "path.data": str(node.data),
        "path.logs": str(folder / "logs"),
        **settings,
    }
    shared = _shared_classes(node, makes_archive) if node.quick else ()
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        f"{flavour.prefix}_JAVA_HOME": str(node.java_home),
        f"{flavour.prefix}_JAVA_OPTS": " ".join(options),
        f"{flavour.prefix}_PATH_CONF": str(folder / "config"),
        f"{flavour.prefix}_TMPDIR": str(folder / "tmp"),
        "CLI_JAVA_OPTS": " ".join((*QUICK_START, *shared)) if node.quick else "",
    }
    program = [str(node.home / "bin" / node.name)]
    if node.quick and node.name == "opensearch":
        program = _opensearch(node, [*shared, *options])
    return {
        "command": [*program, "-p", str(folder / "pid"), *(f"-E{key}={value}" for key, value in all_settings.items())],
        "environment": environment,
        "folder": str(folder),
        "data": str(node.data),
        "console": str(folder / "console"),
        "owner": account(),
    }


def _shared_classes(node: Node, makes_archive: bool) -> tuple[str, ...]:
    """Options by which Java takes classes from the archive, or leaves them; Elasticsearch's launcher alone can."""
    if makes_archive:
        return (f"-XX:ArchiveClassesAtExit={node.archive_made}",)
    return (f"-XX:SharedArchiveFile={node.archive}",) if node.archive.exists() else ()


def _opensearch(node: Node, options: Sequence[str]) -> list[str]:
    """The engine without its script, below a home of links that lacks most modules."""
    (policy,) = (node.home / "agent").glob("opensearch-agent-bootstrap-*.jar")
    return [
        str(node.java_home / "bin" / "java"),
        *OPENSEARCH_NEEDS,
        f"-Xbootclasspath/a:{policy}",  # classes that the engine calls, watched or not
        f"-Djava.io.tmpdir={node.folder / 'tmp'}",
        f"-Dopensearch.path.home={node.folder / 'home'}",
        f"-Dopensearch.path.conf={node.folder / 'config'}",
        *options,
        *("-cp", f"{node.home / 'lib'}/*", "org.opensearch.bootstrap.OpenSearch"),
    ]


def prepare(name: str, home: Path, *, quick: bool) -> Path:
    """A folder for one node: its own copy of `config` (nodes race to write a keystore there), logs, tmp, home."""
    folder = Path(tempfile.mkdtemp(prefix=f"headwater-{name}-"))
    blocked = unreachable(folder / "x") if account() is None else unreachable(folder) or unreachable(home / "bin")
    if blocked is not None:
        shutil.rmtree(folder)
        raise Unavailable(
            f"{blocked} shuts out the unprivileged user that runs engines for root: set TMPDIR or HEADWATER_CACHE"
        )
    for part in ("logs", "tmp", "home/modules"):
        (folder / part).mkdir(parents=True)
    for part in ("lib", "plugins"):
        (folder / "home" / part).symlink_to(home / part)
    for module in MODULES & {path.name for path in (home / "modules").iterdir()}:
        (folder / "home" / "modules" / module).symlink_to(home / "modules" / module)
    shutil.copytree(home / "config", folder / "config")
    options = folder / "config" / "jvm.options"
    left_out = ["logs/", "gc.log", "HeapDump"]  # those would write below the engine's own folder, shared by all
    left_out += ["UseG1GC"] if quick else []
    kept = [line for line in options.read_text("utf-8").splitlines() if not any(word in line for word in left_out)]
    options.write_text("\n".join(kept) + "\n", "utf-8")
    hand_over(folder)
    return folder


def data_folder(folder: Path, *, quick: bool, memory: Path = MEMORY, room: int = ROOM) -> Path:
    """Where the node of a folder keeps its data: in memory when it is to be quick and there is room, else within it."""
    if quick and os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free >= room:
        data = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=memory))
    else:
        data = folder / "data"
        data.mkdir()
    hand_over(data)
    return data


def free_port() -> int:
    """A port of loopback on which nothing listens, and which no process that is still at work was given before."""
    for port in random.sample(PORTS, 100):
        if port in GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
            try:
                probe.bind(("127.0.0.1", port))
                GIVEN[port] = _reservation(port)
            except OSError:
                continue
            return port
    raise EngineFailed(f"no free port between {PORTS.start} and {PORTS.stop}")


def _reservation(port: int) -> int:
    """The descriptor by which other processes see that a port is given, until this one ends. Raises OSError.

    A name of Linux's own, in no file system. Else a server that is down for a while would lose its port.
    """
    if sys.platform != "linux":
        return -1
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0headwater-port-{port}")
    except OSError:
        held.close()
        raise
    return held.detach()  # open as long as the process
