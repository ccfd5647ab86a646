"""`headwater hub`: a WebSub hub, until SIGTERM or Ctrl-C; `hub status`: how it stands; the hub of `serve --hub`."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import counted, json_line, json_option, printable
from headwater.cli.shared_options import FILE, FOLDER, json_when_listening_option, log_format_option, option
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from types import TracebackType

    from headwater.cli.server_log import ServerLog
    from headwater.http.hub import HubServer
    from headwater.notify.hub.policy import HubOptions
    from headwater.source.config import SourceConfig
    from headwater.source.hubs_and_tokens import AccessTokens, HubConfig


@click.group(invoke_without_command=True, short_help="Run a WebSub hub: subscribers are told what publishers hand in.")
@option("--listen HOST:PORT", "Address to listen on; port 0: any free one.  [default: 127.0.0.1:8080]", name="address")
@option(
    "--state DIR",
    "Where subscriptions and what is to be delivered are kept.  [default: $XDG_STATE_HOME/headwater/hub, or else"
    " ~/.local/state/headwater/hub]",
    FOLDER,
)
@option("--base-url URL", "URL of the hub for publishers and subscribers.  [default: http://HOST:PORT/]")
@option("--token TOKEN", "Trust publishers with this token (better by --token-file); without one, topics are asked.")
@option("--token-file FILE", "The same, one token a line.", FILE)
@option(
    "--allow-private [ADDRESS]",
    "Allow private and loopback callbacks and topics: all, or this address or network (may be repeated).",
    name="private",
    is_flag=False,
    flag_value="all",
    multiple=True,
)
@option(
    "--trust-proxy ADDRESS",
    "Trust X-Forwarded-For of the proxy at this address or network (may be repeated).",
    name="proxies",
    multiple=True,
)
@option("--lease-bounds MIN..MAX", "Seconds that a subscription may last.  [default: 300..2678400]")
@option(
    "--signature",
    "Digest of signatures.  [default: sha256]",
    click.Choice(["sha1", "sha256", "sha384", "sha512"]),
    default="sha256",
)
@option("--ca FILE", "Also trust these CA certificates (PEM).", FILE, name="authorities")
@option("-q, --quiet", "No access log.")
@log_format_option
@json_when_listening_option
@click.pass_context
def command(context: click.Context, /, **options: Any) -> Exit | None:
    """Take subscriptions (WebSub) and deliver to each what is published, until it is received.

    Publishers hand in a payload, as ResourceSync notifications are sent, or say which topic has changed. What was
    accepted survives a crash. Ends at SIGTERM (status 0) or Ctrl-C (130).
    """
    if context.invoked_subcommand is not None:
        context.obj = options
        return None
    return _run(options)


@command.command("status", short_help="Show subscriptions, topics and what is still to be delivered.")
@option("--state DIR", "The hub's state folder.", FOLDER)
@option("--topics N", "Topics to show.  [default: 20]", click.IntRange(0, 10_000), name="limit", default=20)
@json_option
@click.pass_context
def status(context: click.Context, state: Path | None, limit: int, as_json: bool) -> Exit:
    """Show how a hub stands, whether it runs or not."""
    from headwater.notify.hub.store import FILE

    folder = state or (context.obj or {}).get("state") or default_state()
    if not (folder / FILE).exists():
        raise UsageFault("no hub has worked in this folder", where=str(folder), advice="Name its folder with --state.")
    return show_status(folder, limit, as_json=as_json)


def show_status(folder: Path, limit: int, *, as_json: bool) -> Exit:
    """Tell how the hub with this state folder stands, with up to `limit` topics."""
    import msgspec

    from headwater.notify.hub.policy import HubLimits
    from headwater.notify.hub.store import HubStore

    store = HubStore(folder, HubLimits())
    try:
        counts, topics = store.counts(), store.topics(limit)
    finally:
        store.close()
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
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "headwater" / "hub"


def _run(options: dict[str, Any]) -> Exit:
    import signal

    from headwater.cli.server_log import open_log
    from headwater.cli.stop_signal import hangups_noted
    from headwater.http.server import address_url, listen
    from headwater.source.hubs_and_tokens import HubConfig

    private = options["private"]
    given = {name: options[name] for name in ("base_url", "token", "token_file", "lease_bounds", "authorities")}
    table = HubConfig(
        **given,
        listen=options["address"] or HubConfig().listen,
        allow_private="all" in private or private,
        trusted_proxies=options["proxies"],
        signature=options["signature"],
    )
    tokens = table.tokens()
    log = open_log(options["log_format"])
    folder = (options["state"] or default_state()).absolute()
    with hangups_noted(log.progress), listen(*table.address) as listener:
        told = table.options(address_url(listener))
        server = _server(table, folder, told, tokens, log, listener, quiet=options["quiet"])

        def announce() -> None:
            believed = _believed(is_own=False, has_tokens=not tokens.is_empty)
            text = f"Hub at {told.url}: it believes {believed}, and delivers to {table.receivers}"
            log.event("listening", text, url=told.url)
            if options["as_json"]:
                event = {"event": "listening", "url": told.url, "address": address_url(listener)}
                json_line({**event, "state": str(folder), "pid": os.getpid()})

        ended = server.run(announce)
    log.event("stopped", "Stopped")
    return Exit.INTERRUPTED if ended.ended_by is signal.SIGINT else Exit.DONE


def _server(
    table: HubConfig,
    folder: Path,
    options: HubOptions,
    tokens: AccessTokens,
    log: ServerLog,
    listener: socket.socket,
    *,
    quiet: bool,
) -> HubServer:
    """The hub of a table, with its state in `folder`, on a listening socket."""
    from headwater.http.hub import HubServer

    def told(topic: str, text: str) -> None:
        log.event("topic", f"{topic}: {text}", topic=topic)

    served = None if quiet else log.served
    return HubServer(table, options, folder, tokens, listener, log.fault, told, served)


_NEXT_PORT = "--hub takes the port after that of the source: stop the other program, or choose another --port."
_FOLDER = "hub"
"""Below the source's state folder."""


class OwnHub:
    """A context manager: the hub works within it. Without a `[notify]` table, the source tells this hub alone."""

    def __init__(self, table: HubConfig, config: SourceConfig, log: ServerLog, *, quiet: bool) -> None:
        from headwater.http.server import address_url

        self._listener = _listener_of(table, None if config.hub is not None else _NEXT_PORT)
        options = table.options(address_url(self._listener))
        self.url = options.url
        self._log = log
        self._table = table
        self._token = None if config.notify is not None else secrets.token_hex(32)
        given = table.tokens()
        self._believed = _believed(is_own=self._token is not None, has_tokens=not given.is_empty)
        tokens = table.tokens([self._token]) if self._token is not None else given
        folder = Path(table.state or Path(config.state) / _FOLDER).absolute()
        self._server = _server(table, folder, options, tokens, log, self._listener, quiet=quiet)

    def configured(self, config: SourceConfig) -> SourceConfig:
        """The configuration of a source that tells this hub, unless it says whom it tells."""
        if self._token is None or config.notify is not None:
            return config
        import msgspec

        from headwater.source.hubs_and_tokens import NotifyConfig

        notify = NotifyConfig(hubs=(self.url,), token=self._token, authorities=self._table.authorities)
        return msgspec.structs.replace(config, notify=notify)

    def __enter__(self) -> OwnHub:
        try:
            self._server.start()
        except BaseException:
            self._listener.close()
            raise
        text = f"Hub at {self.url}: it believes {self._believed}, and delivers to {self._table.receivers}"
        self._log.event("hub", text, url=self.url)
        return self

    def __exit__(self, *_error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.stop()
        self._listener.close()


def _believed(*, is_own: bool, has_tokens: bool) -> str:
    """Which publishers the hub believes, in words; `is_own`: the source tells it alone."""
    if is_own:
        return "this source, and publishers with its token" if has_tokens else "this source alone"
    return "publishers with its token, or whose topics name it" if has_tokens else "publishers whose topics name it"


def _listener_of(table: HubConfig, advice: str | None) -> socket.socket:
    """The socket of the hub. Raises AddressInUse, which says that it is the hub's."""
    from headwater.http.server import AddressInUse, listen

    try:
        return listen(*table.address)
    except AddressInUse as fault:
        raise AddressInUse(f"the hub: {fault.what}", where=fault.where, advice=advice or fault.todo) from fault


def one_machine(config: SourceConfig, listener: socket.socket) -> HubConfig:
    """The hub of `--hub`: at the port after the source's, for subscribers on this machine. Raises UsageFault."""
    from headwater.source.hubs_and_tokens import LOOPBACK, HubConfig

    if not _is_loopback(config.host):
        raise UsageFault(
            f"--hub is for one machine, and others reach {config.host or 'every address'}",
            advice="Write a [hub] table into a CONFIG file, with the addresses that it may deliver to.",
        )
    port = listener.getsockname()[1] + 1 if config.port else 0
    host = f"[{config.host}]" if ":" in config.host else config.host
    return HubConfig(listen=f"{host}:{port}", allow_private=LOOPBACK)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
