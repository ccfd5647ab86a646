"""The command line: on which systems it runs, its commands, a module each, and the exit status of every end.

This module finds the command and turns every end into an exit status. `headwater --help` must answer at once, so
commands are named in a table and imported only when they are called.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from headwater.cli.output import JSON_BEGUN, complain, json_error, printable
from headwater.errors import Exit, HeadwaterError, Interrupted, StoreFault, UsageFault, disk_fault, message
from headwater.version import whole_version

SUMMARIES = {
    "sync": "Copy a source into a folder, verify every file, and keep the copy current.",
    "follow": "Follow many sources with one service, by a configuration.",
    "audit": "Compare a copy with its source, every file by its hash.",
    "export": "Write a manifest or a bag of a copy.",
    "restore": "Rebuild what a copy had at a time, from its backups.",
    "explore": "Show what a source offers, as a tree.",
    "inspect": "Show what is in a ResourceSync document or package.",
    "publish": "Publish a folder as static files for any web server.",
    "serve": "Publish folders over HTTP and follow their changes.",
    "check-config": "Show what is wrong with a configuration.",
    "hub": "Run a WebSub hub, which delivers notifications to subscribers.",
    "ingest": "Record resources of a set without a folder: events, `dit` documents, an index.",
    "status": "Show the state of a source, a copy, a hub or a service.",
    "why": "Show whether a resource is listed, or in a copy, and if not, why.",
    "allow-deletions": "Let a source delete, once, what it holds back.",
    "retry": "Let the next run over a copy retry what failed.",
    "forget": "Let a copy forget failures, deletions held back, or sets.",
    "replay": "Tell a sink of a service events once more.",
    "approve": "Approve what a source of a service asks.",
    "refuse": "Refuse what a source of a service asks.",
    "run": "Let a source of a service run at once.",
    "pause": "Begin no more runs of a source of a service.",
    "resume": "Follow a paused or retired source of a service again.",
    "retire": "Follow a source of a service no longer.",
    "catalog": "Export, import, verify or remove sets of a catalog.",
    "versions": "Show, verify or remove the versions that a source keeps.",
    "simulate": "Simulate a source whose resources change at a given rate.",
    "rdf": "Convert, compare, patch and check RDF datasets.",
    "completion": "Print the completion script for a shell.",
}
_MODULES = {
    **dict.fromkeys(("retry", "forget", "allow-deletions"), "headwater.cli.failed_and_held_back"),
    **dict.fromkeys(("export", "restore"), "headwater.cli.export"),
    **dict.fromkeys(
        ("follow", "approve", "refuse", "run", "pause", "resume", "retire", "replay"), "headwater.cli.aggregator"
    ),
    "check-config": "headwater.cli.serve_options",
}
"""Modules of several commands, each by its own name there; one of a single command has its name, and it `command`."""
COMMANDS = tuple(SUMMARIES)

_CONTINUED = ("sync", "publish", "simulate")
"""Commands of which the next run goes on with what an interrupted one has left."""

_NO_TEMPORARY_FOLDER = "No usable temporary directory"  # what the standard library says, without a number of its own
_SET_TMPDIR = "Set TMPDIR to a folder that can be written to and has room."
_BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended
_INTERNAL = 70  # EX_SOFTWARE of sysexits.h
_HANGING_SECONDS = 2.0
_WORDS = (
    (re.compile(r"(Directory|File) ('.*') does not exist\.$"), r"\2 does not exist."),
    (re.compile(r"Directory ('.*') is a file\.$"), r"\1 is a file, and a folder is needed."),
    (re.compile(r"File ('.*') is a directory\.$"), r"\1 is a folder, and a file is needed."),
    (re.compile(r"(\S+) is not in the range (\S+?)<=x<=(\S+)\.$"), r"\1 is not between \2 and \3."),
    (re.compile(r"(\S+) is not in the range x>=(\S+)\.$"), r"\1 is less than \2."),
    (re.compile(r"is not a valid (integer|int)( range)?\.$"), "is no whole number."),
    (re.compile(r"is not a valid float( range)?\.$"), "is no number."),
)
"""What the library of the command line says of a value, and what we say instead."""


def command_named(name: str) -> click.Command:
    """One of COMMANDS, imported."""
    if name == "completion":
        return completion
    attribute = name.replace("-", "_")
    if (shared := _MODULES.get(name)) is not None:
        command: click.Command = getattr(import_module(shared), attribute)
    else:
        command = import_module(f"headwater.cli.{attribute}").command
    return command


class Commands(click.Group):
    """A click group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_named(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; of one that is none, what was probably meant."""
        if args and (meant := get_close_matches(args[0], COMMANDS, 1)) and args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}: did you mean {meant[0]}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, text in SUMMARIES.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(whole_version(), "--version", message="headwater %(version)s")
def program() -> None:
    """Publish collections of files, and keep verified copies of them current (ResourceSync, ANSI/NISO Z39.99).

    Exit statuses: 0 done; 1 not in sync, or findings; 2 usage; 3 fault of the source; 4 done, but something failed or
    is held back; 5 undetermined; 6 fault of our own store; 130 interrupted.
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    Put `eval "$(headwater completion bash)"` into ~/.bashrc (zsh: ~/.zshrc). For fish, write the script to
    ~/.config/fish/completions/headwater.fish.
    """
    if (script := get_completion_class(shell)) is not None:
        click.echo(script(program, {}, "headwater", "_HEADWATER_COMPLETE").source())


def main(args: Sequence[str] | None = None) -> None:
    """Run the program and leave the process with the command's exit status."""
    status = run(sys.argv[1:] if args is None else args)
    if sys.stdout is not None:  # else it was closed by whoever started us
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            status = _hang_up()
    _leave_hanging_threads(status)
    sys.exit(status)


def _leave_hanging_threads(status: int) -> None:
    """End the process now when a thread still waits for a node that hangs: it was cut off in order, and lost nothing.

    The interpreter would wait for it, for as long as one request may take.
    """
    until = time.monotonic() + _HANGING_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith("headwater-") and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                sys.stderr.flush()
                os._exit(status)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit status; whatever goes wrong is told on standard error.

    A command returns its `Exit` (None means done) or raises a `HeadwaterError`. With `--json` an error is told on
    standard output as well, as JSON.
    """
    if instruction := os.environ.get("_HEADWATER_COMPLETE"):
        return shell_complete(program, {}, "headwater", "_HEADWATER_COMPLETE", instruction)
    begun: dict[str, object] = {}
    context: click.Context | None = None
    if sys.platform == "win32":
        what = "Headwater does not run on Windows: its locks and its renames are those of POSIX systems"
        advice = "Run it in WSL or in a container, with its folders on a Linux file system."
        return _told(UsageFault(what, advice=advice), as_json="--json" in args)

    try:
        with program.make_context("headwater", list(args)) as context:
            begun = context.meta
            status = program.invoke(context)
        return int(status) if isinstance(status, int) else Exit.DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return Exit.USAGE
    except BrokenPipeError:
        return _hang_up()
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  the last place that can say anything at all
        fault = _fault_of(error, context)
        as_json = "--json" in args and JSON_BEGUN not in begun
        if fault is not None:
            return _told(fault, as_json=as_json)
        from traceback import print_exception

        print_exception(error)
        said = f"{type(error).__name__}: {error}"
        if as_json:
            json_error(HeadwaterError(f"internal error: {said}"), _INTERNAL)
        click.echo(
            f"internal error: {printable(said)}\n"
            f"  code: HW-000 (headwater {whole_version()}, Python {sys.version.split()[0]})\n"
            "  do: this is a bug in headwater; please report it with the lines above",
            err=True,
        )
        return _INTERNAL


def _fault_of(error: BaseException, context: click.Context | None) -> HeadwaterError | None:
    """The fault that is told of an error; None: it is a bug of ours."""
    match error:
        case HeadwaterError():
            return error
        case click.ClickException():  # a command line that cannot be: told like every other error
            at = error.ctx if isinstance(error, click.UsageError) else None
            said = error.format_message()
            for words, ours in _WORDS:
                said = words.sub(ours, said)
            return UsageFault(said, advice=f"`{at.command_path if at else 'headwater'} --help` shows what is possible.")
        case KeyboardInterrupt() | click.Abort():
            continues = context is not None and context.invoked_subcommand in _CONTINUED
            return Interrupted("interrupted", advice=None if continues else "Run the same command again.")
        case OSError():  # a failing disk that no room has named: still a fault of our own store, not a bug of ours
            if error.filename is not None or not str(error.strerror).startswith(_NO_TEMPORARY_FOLDER):
                return disk_fault(error)
            what, tried = "no folder for temporary files can be written to", str(error.strerror).partition("[")[2]
            return StoreFault(what, where=tried.rstrip("]") or None, advice=_SET_TMPDIR)
    return None


def _told(error: HeadwaterError, *, as_json: bool) -> int:
    """Tell an error, and return its exit status."""
    if isinstance(error, Interrupted):
        click.echo("interrupted", err=True)
        if error.todo == message(error.code).advice:  # else there is nothing to go on with, or the command has said how
            click.echo(f"  do: {error.todo}", err=True)
    else:
        complain(error)
    if as_json:
        json_error(error, error.exit_status)
    return error.exit_status


def _hang_up() -> int:
    """Nobody reads our output any more: go quietly, also when the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE
