"""What a caller asks of a destination, and what it is told at the end."""

from __future__ import annotations

import msgspec

from headwater.errors import Exit
from headwater.sync.checks import SECRETS, checked
from headwater.sync.filters import selection


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to synchronise. The defaults are what the command does without options.

    Raises UsageFault for a value that the command would refuse.
    """

    sets: tuple[str, ...] = ()
    """Names or Capability List URIs of the sets wanted; empty: all."""

    delete: bool = True
    max_delete: float | None = None
    """The share of what is held (0 to 1) that may be deleted; None: the guard of DST-B4."""

    dry_run: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    concurrency: int = 64
    rate: float | None = None
    bwlimit: int | None = None
    """Octets a second of everything that is fetched."""

    base: str | None = None
    allow_hosts: tuple[str, ...] = ()
    any_host: bool = False
    skip_hosts: tuple[str, ...] = ()
    """Hosts whose resources the user leaves out: a choice, and no refusal (DST-S12)."""

    sitemap: bool = False
    baseline: bool = False
    """Do a baseline even where an increment would do."""

    moved: bool = False
    """The copy's source is at this address by now (DST-F10)."""

    repair: bool = False
    """Hash every held file first, and fetch again what is missing or different."""

    backup_dir: str | None = None
    """Keep what is replaced or deleted below this folder, in one of its own for each run that does so."""

    largest: int = 16 << 30
    """Octets of the largest resource whose list states no length."""

    stall_seconds: int = 30
    """How long an answer may stand still before it counts as lost."""

    retries: int = 2
    """How often what may pass is tried again before it is remembered as failed."""

    authorization: str | None = None
    """Value of an `Authorization` header for the origin of the address, and for no other; so are the next five."""

    user: str | None = None
    password: str | None = None
    """Name and password (Basic, RFC 7617), in place of `authorization`."""

    headers: tuple[tuple[str, str], ...] = ()
    """Further headers, each as name and value."""

    cert: str | None = None
    key: str | None = None
    """Files of a client certificate and its key (PEM); without the latter both are in the former."""

    netrc: bool = True
    """Where none of these say who asks, the file that `NETRC` names, or ~/.netrc, may."""

    ca: str | None = None
    """A file of certificate authorities (PEM) that are believed beside those of the machine."""

    proxy: str | None = None
    """The URI of a proxy for all requests, in place of those of the environment."""

    patient: bool = False
    """Keep each failure's own retry clock, as a service that follows does (DST-F6)."""

    def __post_init__(self) -> None:
        checked(self)
        selection(self.include, self.exclude)

    def __repr__(self) -> str:
        """The fields that are not as they are by themselves; nothing that is secret."""
        said = ((f.name, getattr(self, f.name), f.default) for f in msgspec.structs.fields(self))
        told = (f"{name}={'***' if name in SECRETS else repr(value)}" for name, value, usual in said if value != usual)
        return f"SyncOptions({', '.join(told)})"


class Action(msgspec.Struct, frozen=True):
    """One line of a plan."""

    action: str
    uri: str
    path: str


class Failed(msgspec.Struct, frozen=True):
    """One remembered failure. `waits_until`: the source asked, by `Retry-After`, not to be asked again before."""

    uri: str
    reason: str
    tries: int
    waits_until: str | None = None


class SetReport(msgspec.Struct, kw_only=True):
    """What a run did for one set. Counts are of resources; `position` and `at` are source times."""

    name: str
    folder: str
    capability_list: str | None = None
    process: str = "none"
    created: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    failed: int = 0
    refused: int = 0
    skipped: int = 0
    left_out: int = 0
    held_back: int = 0
    newer_than_listed: int = 0
    adopted: int = 0
    octets: int = 0
    held: int = 0
    base: str | None = None
    at: str | None = None
    position: str | None = None
    complete: bool = True
    fault: str | None = None
    failures: list[Failed] = []
    plan: list[Action] = []
    plan_is_cut: bool = False
    exit_status: int = Exit.DONE


class Report(msgspec.Struct, kw_only=True):
    """What a run did. `exit_status` is that of the command."""

    source: str
    destination: str
    dry_run: bool = False
    sets: list[SetReport] = []
    faults: list[str] = []
    backup: str | None = None
    """The folder in which this run has kept what it replaced or deleted, and how many files."""

    backed_up: int = 0
    requests: int = 0
    document_octets: int = 0
    seconds: float = 0.0
    retry_after_seconds: float | None = None
    """How long the source has asked, by a document's `Retry-After`, not to be asked again (DST-C6)."""

    max_age_seconds: float | None = None
    """How long the polled documents stay fresh by their `Cache-Control` (DST-C6)."""

    untold: str | None = None
    """A mark as long as there are changes, of this run or of earlier ones, that no command of `--exec` was told of."""

    exit_status: int = Exit.DONE

    def total(self, name: str) -> int:
        """The sum of one count over all sets."""
        return sum(getattr(one, name) for one in self.sets)


_GRAVEST = (Exit.STORE, Exit.SOURCE, Exit.UNDETERMINED, Exit.TRANSFERS_FAILED, Exit.DONE)


def gravest(statuses: list[int]) -> int:
    """The exit status that counts when several apply."""
    return next((int(status) for status in _GRAVEST if status in statuses), int(Exit.DONE))
