"""What a node is started with: its ports, its folder, its command and environment."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.engines.errors import EngineFailed, Unavailable
from tools.engines.unprivileged import account, hand_over, unreachable

QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""Halves the CPU time of a start (OpenSearch 22 s to 11 s, Elasticsearch 14 s to 7 s) by compiling less well: what
measures throughput passes no such option."""

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
GIVEN: set[int] = set()
"""Ports that this process has given to nodes, some of which may be down just now."""


def order(
    name: str, home: Path, java_home: Path, folder: Path, settings: Mapping[str, str], options: Sequence[str]
) -> dict[str, object]:
    """What the guard is to start: the engine that is unpacked in `home`, with settings of its own and of ours."""
    flavour = FLAVOURS[name]
    all_settings = {
        "node.name": name,
        **EVERYWHERE,
        **({} if "discovery.seed_hosts" in settings else ALONE),
        **flavour.settings,
        "path.data": str(folder / "data"),
        "path.logs": str(folder / "logs"),
        **settings,
    }
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        f"{flavour.prefix}_JAVA_HOME": str(java_home),
        f"{flavour.prefix}_JAVA_OPTS": " ".join(options),
        f"{flavour.prefix}_PATH_CONF": str(folder / "config"),
        f"{flavour.prefix}_TMPDIR": str(folder / "tmp"),
    }
    program = [str(home / "bin" / name), "-p", str(folder / "pid")]
    return {
        "command": [*program, *(f"-E{key}={value}" for key, value in all_settings.items())],
        "environment": environment,
        "folder": str(folder),
        "console": str(folder / "console"),
        "owner": account(),
    }


def prepare(name: str, home: Path) -> Path:
    """A folder for one node: its own copy of `config` (nodes race to write a keystore there), data, logs, tmp."""
    folder = Path(tempfile.mkdtemp(prefix=f"headwater-{name}-"))
    blocked = unreachable(folder / "x") if account() is None else unreachable(folder) or unreachable(home / "bin")
    if blocked is not None:
        shutil.rmtree(folder)
        raise Unavailable(
            f"{blocked} shuts out the unprivileged user that runs engines for root: set TMPDIR or HEADWATER_CACHE"
        )
    for part in ("data", "logs", "tmp"):
        (folder / part).mkdir()
    shutil.copytree(home / "config", folder / "config")
    options = folder / "config" / "jvm.options"
    kept = [line for line in options.read_text("utf-8").splitlines() if "logs/" not in line and "HeapDump" not in line]
    options.write_text(
        "\n".join(kept) + "\n", "utf-8"
    )  # those would write below the engine's own folder, shared by all
    hand_over(folder)
    return folder


def free_port() -> int:
    """A port of loopback on which nothing listens, and which was not given before."""
    for port in random.sample(PORTS, 100):
        if port in GIVEN:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            GIVEN.add(port)
            return port
    raise EngineFailed(f"no free port between {PORTS.start} and {PORTS.stop}")
