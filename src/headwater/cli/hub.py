"""`headwater hub`: a WebSub hub, until SIGTERM or Ctrl-C; `hub status`: how it stands; the hub of `serve --hub`."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from headwater.cli.output import counted, json_line, json_option, printable
from headwater.cli.serve_options import state_home
from headwater.cli.server_log import ServerLog, open_log
from headwater.cli.shared_options import FILE, FOLDER, json_when_listening_option, log_format_option, option
from headwater.cli.stop_signal import hangups_noted
from headwater.errors import Exit, UsageFault
from headwater.http.hub import HubApplication, HubEndpoint
from headwater.http.server import (
    AddressInUse,
    MakeServer,
    ServerThread,
    UvicornServer,
    address_url,
    listen,
    make_server,
    run_in_loop,
)
from headwater.notify.hub.hub import Hub
from headwater.notify.hub.policy import HubLimits
from headwater.notify.hub.store import FILE as HUB_FILE
from headwater.notify.hub.store import HubStore
from headwater.publish.document_names import CHANNELS
from headwater.publish.site import Site, topic_url
from headwater.source.config import SourceConfig
from headwater.source.hubs_and_tokens import LOOPBACK, HubConfig, NotifyConfig
from headwater.spec.uris import normalise


@click.group(invoke_without_command=True)
@option("--listen HOST:PORT", "The address to listen on; port 0: any.  [default: 127.0.0.1:8080]", name="address")
@option(
    "--state DIR",
    "Folder for subscriptions and pending deliveries."
    "  [default: $XDG_STATE_HOME/headwater/hub, or else ~/.local/state/headwater/hub]",
    FOLDER,
)
@option("--base-url URL", "The URL of the hub for publishers and subscribers.  [default: http://HOST:PORT/]")
@option(
    "--token TOKEN",
    "Accept payloads of publishers with this token; else the hub fetches the topic. Better: --token-file.",
)
@option("--token-file FILE", "A file of such tokens, one a line.", FILE)
@option(
    "--allow-private [ADDRESS]",
    "Allow private and loopback callbacks and topics: all, or this address or network (repeatable).",
    name="private",
    is_flag=False,
    flag_value="all",
    multiple=True,
)
@option(
    "--trust-proxy ADDRESS",
    "Trust X-Forwarded-For of the proxy at this address or network (repeatable).",
    name="proxies",
    multiple=True,
)
@option("--lease-bounds MIN..MAX", "Shortest and longest subscription, in seconds.  [default: 300..2678400]")
@option(
    "--signature",
    "Digest that signs deliveries.  [default: sha256]",
    click.Choice(["sha1", "sha256", "sha384", "sha512"]),
    default="sha256",
)
@option("--ca FILE", "Also trust these CA certificates (PEM).", FILE, name="authorities")
@option("-q, --quiet", "Write no access log.")
@log_format_option
@json_when_listening_option
@click.pass_context
def command(context: click.Context, /, **options: Any) -> Exit | None:
    """Run a WebSub hub: take subscriptions, and deliver each notification until the subscriber has it.

    Publishers send a payload, as ResourceSync notifications do, or name a topic that changed. Accepted payloads survive
    a crash. The hub ends at SIGTERM (status 0) or Ctrl-C (130).
    """
    if context.invoked_subcommand is not None:
        context.obj = options
        return None
    private = options["private"]
    given = {name: options[name] for name in ("base_url", "token", "token_file", "lease_bounds", "authorities")}
    table = HubConfig(
        **given,
        listen=options["address"] or HubConfig().listen,
        allow_private="all" in private or private,
        trusted_proxies=options["proxies"],
        signature=options["signature"],
    )
    log = open_log(options["log_format"])
    folder = options["state"] or default_state()
    hub = CommandHub(table, folder, log, quiet=options["quiet"])

    def announce() -> None:
        hub.announce("listening")
        if options["as_json"]:
            event = {"event": "listening", "url": hub.url, "address": hub.address}
            json_line({**event, "state": str(folder.absolute()), "pid": os.getpid()})

    with hangups_noted(log.progress), hub.listener:
        ended = run_in_loop(hub.serve(partial(make_server, on_ready=announce)))
    log.event("stopped", "Stopped")
    return Exit.INTERRUPTED if ended.ended_by is signal.SIGINT else Exit.DONE


@command.command("status", short_help="Show subscriptions, topics and pending deliveries.")
@option("--state DIR", "The hub's state folder.", FOLDER)
@option(
    "--topics N",
    "Maximum number of topics to show.  [default: 20]",
    click.IntRange(0, 10_000),
    name="limit",
    default=20,
)
@json_option
@click.pass_context
def status(context: click.Context, state: Path | None, limit: int, as_json: bool) -> Exit:
    """Show subscriptions, topics and pending deliveries of a hub, whether it runs or not."""
    folder = state or (context.obj or {}).get("state") or default_state()
    if not (folder / HUB_FILE).exists():
        raise UsageFault("no hub has worked in this folder", where=str(folder), advice="Name its folder with --state.")
    return show_status(folder, limit, as_json=as_json)


def show_status(folder: Path, limit: int, *, as_json: bool) -> Exit:
    """Tell how the hub with this state folder stands, with up to `limit` topics."""
    with closing(HubStore(folder, HubLimits())) as store:
        counts, topics = store.counts(), store.topics(limit)
    if as_json:
        json_line({**msgspec.structs.asdict(counts), "by_topic": [msgspec.structs.asdict(one) for one in topics]})
        return Exit.DONE
    click.echo(
        f"{counted(counts.subscriptions, 'subscription')} to {counted(counts.topics, 'topic')},"
        f" {counts.pending:,} not verified yet"
    )
    click.echo(
        f"{counts.behind:,} behind, {counts.failing:,} of them not answering;"
        f" {counted(counts.messages, 'message')} kept for them"
    )
    for one in topics:
        late = f", {one.behind:,} behind" if one.behind else ""
        click.echo(f"  {printable(one.topic)}  {counted(one.subscriptions, 'subscription')}{late}")
    return Exit.DONE


def default_state() -> Path:
    """Where a hub keeps its state when nobody says."""
    return state_home() / "hub"


class CommandHub:
    """The hub of a table, which listens from the beginning. `serve` serves it, or a thread while it is entered."""

    def __init__(
        self, table: HubConfig, folder: Path, log: ServerLog, *, quiet: bool, token: str | None = None
    ) -> None:
        """`folder` has its state, `token` is that of a source that tells it alone. Raises AddressInUse, UsageFault."""
        given = table.tokens()
        if token is None:
            or_named = "publishers with its token, or whose topics name it"
            believed = "publishers whose topics name it" if given.is_empty else or_named
        else:
            believed = "this source alone" if given.is_empty else "this source, and publishers with its token"
        self.listener = listen(*table.address)
        self.address = address_url(self.listener)
        options = table.options(self.address)
        self.url = options.url
        self.notify: NotifyConfig | None = None
        """How the source tells it, where that tells it alone."""
        if token is not None:
            self.notify = NotifyConfig(hubs=(self.url,), token=token, authorities=table.authorities)
        self._table, self._folder, self._log, self._quiet = table, folder.absolute(), log, quiet
        self._options, self._tokens = options, given if token is None else table.tokens([token])
        self._topics = set[str]()
        self._thread = ServerThread("headwater-hub", self.serve, log.fault)
        self._words = f"Hub at {self.url}: it believes {believed}, and delivers to {table.receivers}"

    async def serve(self, make_server: MakeServer) -> UvicornServer:
        """Serve until the server that is made has ended; gives it. Raises the hub's faults."""
        log, table = self._log, self._table
        hub = Hub(
            self._folder,
            self._options,
            table.addresses,
            on_fault=log.fault,
            on_topic_fault=lambda topic, text: log.event("topic", f"{topic}: {text}", topic=topic),
            topics=self._topics,
        )
        try:
            hub.start()
            heard = None if self._quiet else log.served
            app = HubApplication(hub, HubEndpoint(hub, self._tokens), heard, table.proxies, log.fault)
            server = make_server(app)
            await server.serve(sockets=[self.listener])
            return server
        finally:
            await hub.close()

    def know(self, site: Site) -> None:
        """Take subscriptions to the topics of the source's site alone, unless it has other publishers."""
        if self._table.tokens().is_empty:
            self._topics.update(normalise(topic_url(site, one.name, kind)) for one in site.sets for kind in CHANNELS)

    def announce(self, event: str) -> None:
        """Say in the log where it is, whom it believes and to whom it delivers."""
        self._log.event(event, self._words, url=self.url)

    def __enter__(self) -> CommandHub:
        try:
            self._thread.start()
        except BaseException:
            self.listener.close()
            raise
        self.announce("hub")
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.stop()
        self.listener.close()


_NEXT_PORT = "--hub takes the port after that of the source: stop the other program, or choose another --port."


def hub_of_source(table: HubConfig, config: SourceConfig, log: ServerLog, *, quiet: bool) -> CommandHub:
    """The hub that a source runs. Raises AddressInUse, which says that it is the hub's."""
    token = None if config.notify is not None else secrets.token_hex(32)
    try:
        return CommandHub(table, Path(table.state or Path(config.state) / "hub"), log, quiet=quiet, token=token)
    except AddressInUse as fault:
        advice = fault.todo if config.hub is not None else _NEXT_PORT
        raise AddressInUse(f"the hub: {fault.what}", where=fault.where, advice=advice) from fault


def one_machine(config: SourceConfig, listener: socket.socket) -> HubConfig:
    """The hub of `--hub`: at the port after the source's, for subscribers on this machine. Raises UsageFault."""
    try:
        is_loopback = ipaddress.ip_address(config.host).is_loopback
    except ValueError:
        is_loopback = config.host == "localhost"
    if not is_loopback:
        advice = "Write a [hub] table into a CONFIG file, with the addresses that it may deliver to."
        raise UsageFault(f"--hub is for one machine, and others reach {config.host or 'every address'}", advice=advice)
    port = listener.getsockname()[1] + 1 if config.port else 0
    host = f"[{config.host}]" if ":" in config.host else config.host
    return HubConfig(listen=f"{host}:{port}", allow_private=LOOPBACK)
