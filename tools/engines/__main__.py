"""The command line: `python -m tools.engines fetch|start|status|where`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from contextlib import ExitStack, suppress

from tools.engines import artifacts, java
from tools.engines.cluster import Cluster
from tools.engines.engine import Engine, archive_classes
from tools.engines.errors import EngineFailed, Unavailable
from tools.engines.launch import FLAVOURS


def main() -> int:
    names = list(artifacts.pinned())
    parser = argparse.ArgumentParser(prog="python -m tools.engines", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="fetch, check and unpack engines that are not in the cache")
    fetch.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; all when none is given")
    start = commands.add_parser("start", help="run an engine till Ctrl-C, with data that is thrown away afterwards")
    start.add_argument("name", choices=list(FLAVOURS))
    start.add_argument("--port", type=int, help="where it answers; a free port when not given")
    start.add_argument("--heap", default="512m", help="the JVM's heap (%(default)s)")
    start.add_argument("--nodes", type=int, default=1, help="so many nodes as one cluster, on free ports")
    start.add_argument("--secured", action="store_true", help="with TLS and a user, who are told")
    commands.add_parser("status", help="what is there and what is missing")
    where = commands.add_parser("where", help="the folder of an engine, of the cache, or of the Java that is used")
    where.add_argument("what", nargs="?", default="cache", choices=["cache", "java", *names])
    arguments = parser.parse_args()
    try:
        match arguments.command:
            case "fetch":
                for name in arguments.names or names:
                    print(f"{name}: {artifacts.install(known(name))}")
                    archive_classes(name)
            case "start":
                run(arguments)
            case "status":
                return status()
            case _:
                print(place(arguments.what))
    except (Unavailable, EngineFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def known(name: str) -> artifacts.Artifact:
    pinned = artifacts.pinned()
    if name not in pinned:
        raise Unavailable(f"no engine is called {name}: there are {', '.join(pinned)}")
    return pinned[name]


def run(arguments: argparse.Namespace) -> None:
    """Start, say where, and stay until Ctrl-C."""
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        if arguments.nodes > 1:
            urls = stack.enter_context(
                Cluster(arguments.nodes, name=arguments.name, heap=arguments.heap, quick=False)
            ).urls
        else:
            options = {"heap": arguments.heap, "port": arguments.port, "secured": arguments.secured}
            engine = stack.enter_context(Engine(arguments.name, quick=False, **options))
            urls = [engine.url]
            if known := engine.security:
                print(f"authority: {known.ca}\nuser: {known.user}\npassword: {known.password}", file=sys.stderr)
        print(*urls, sep="\n", flush=True)
        print("Ctrl-C ends it", file=sys.stderr)
        while True:
            signal.pause()


def status() -> int:
    """Say what is there; 1 when an engine could not be started here and now."""
    lacking = 0
    for artifact in artifacts.pinned().values():
        home = artifacts.installed(artifact)
        print(f"{artifact.name} {artifact.version}: {home or 'not fetched yet'}")
        lacking += home is None
    print(f"Maven: {shutil.which('mvn') or 'missing (needed only to fetch): apt-get install maven'}")
    openssl = shutil.which("openssl")
    print(f"openssl: {openssl or 'missing (needed for the secured ones): apt-get install openssl'}")
    lacking += openssl is None
    try:
        found = java.find(oldest_java())
        print(f"Java: {found.release} in {found.home}")
    except Unavailable as error:
        print(f"Java: {error}")
        lacking += 1
    return min(lacking, 1)


def place(what: str) -> str:
    if what == "cache":
        return str(artifacts.cache())
    if what == "java":
        return str(java.find(oldest_java()).home)
    home = artifacts.installed(known(what))
    if home is None:
        raise Unavailable(f"{what} is not fetched yet: python -m tools.engines fetch {what}")
    return str(home)


def oldest_java() -> int:
    """The oldest Java on which all engines run."""
    return max(artifact.java for artifact in artifacts.pinned().values())


if __name__ == "__main__":
    sys.exit(main())
