"""Several nodes of one engine as one cluster on this machine: node loss, failover and replicas for real.

with Cluster(3) as cluster:
    cluster.urls
    cluster.nodes[1].kill()         # what one node can, each node of a cluster can
    cluster.nodes[1].start()
    cluster.wait(status="green")
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Self

from tools.engines.engine import START_SECONDS, Engine
from tools.engines.launch import FLAVOURS, NONE

QUICK_TO_NOTICE: Mapping[str, str] = MappingProxyType(
    {
        "cluster.fault_detection.follower_check.timeout": "1s",
        "cluster.fault_detection.leader_check.timeout": "1s",
        "cluster.publish.timeout": "5s",
    }
)
"""Settings with which a paused node is given up after seconds; as they come, engines wait longer than a minute. (A
killed node is noticed at once, by its closed connections.)"""


class Cluster:
    """Nodes that know each other, all started; each may be chosen to lead. Raises what `Engine` raises."""

    def __init__(
        self,
        count: int,
        *,
        name: str = "opensearch",
        heap: str = "512m",
        quick: bool = True,
        settings: Mapping[str, str] = NONE,
    ) -> None:
        self.nodes: list[Engine] = []
        with ExitStack() as undo:
            undo.callback(self.close)
            for number in range(1, count + 1):
                own = {**settings, "node.name": f"n{number}"}
                self.nodes.append(Engine(name, heap=heap, quick=quick, settings=own, start=False))
            together = {
                "cluster.name": "headwater",
                "discovery.seed_hosts": ",".join(f"127.0.0.1:{node.transport_port}" for node in self.nodes),
                FLAVOURS[name].electors: ",".join(node.settings["node.name"] for node in self.nodes),
            }
            for node in self.nodes:
                node.settings.update(together)
                node.start(wait=False)
            self.wait()
            undo.pop_all()

    @property
    def urls(self) -> list[str]:
        """Where each node answers, in the order of `nodes`, those that are down included."""
        return [node.url for node in self.nodes]

    def wait(self, *, status: str = "yellow", seconds: float = START_SECONDS) -> None:
        """Wait until every running node sees every running node, and no index is worse than `status`."""
        running = [node for node in self.nodes if node.running]
        for node in running:
            node.wait(status=status, nodes=len(running), seconds=seconds)

    def close(self) -> None:
        """End all nodes at once and remove their folders."""
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
