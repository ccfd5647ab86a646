"""Reports: what a caller is told at the end of a run, of each set and of all, and its exit status."""

from __future__ import annotations

import msgspec

from headwater.errors import Exit


class PlannedAction(msgspec.Struct, frozen=True):
    """One line of a plan."""

    action: str
    uri: str
    path: str


class FailedTransfer(msgspec.Struct, frozen=True):
    """One remembered failure. `waits_until`: the source asked, by `Retry-After`, not to be asked again before."""

    uri: str
    reason: str
    tries: int
    waits_until: str | None = None


class UnverifiedVersion(msgspec.Struct, frozen=True):
    """An earlier state that no hash has verified: it is what a version said of itself (RFC 7089)."""

    uri: str
    version: str
    memento_datetime: str | None = None


class TransferWay(msgspec.Struct, kw_only=True):
    """A way to the octets of resources beside single requests, whether it was taken, why, and what came of it."""

    way: str
    """`Resource Dump`, `Change Dump` or `on demand`."""

    why: str
    taken: bool = False
    packages: int = 0
    requests: int = 0
    resources: int = 0
    """Resources that it has brought."""

    octets: int = 0
    """Octets of its packages."""

    fault: str | None = None


class StoreReport(msgspec.Struct, kw_only=True):
    """What became of one triplestore that follows a dataset."""

    store: str
    """Its folder or its address."""

    done: str = "unchanged"
    """`unchanged`, `loaded`, `patched` or `failed`."""

    removed: int = 0
    added: int = 0
    fault: str | None = None


class DatasetReport(msgspec.Struct, kw_only=True):
    """The RDF dataset of a set: its canonical N-Quads, and the stores that follow it."""

    uri: str
    sha256: str | None = None
    quads: int | None = None
    stores: list[StoreReport] = []


class SetReport(msgspec.Struct, kw_only=True):
    """What a run did for one set. Counts are of resources; `position` and `at` are source times."""

    name: str
    folder: str
    capability_list: str | None = None
    process: str = "none"
    baseline_by: str = "Resource List"
    """What a baseline went by: a `Resource Dump` where there is no Resource List."""

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
    to_fetch_octets: int = 0
    """In a dry run, the octets of what would be created or updated, as far as the lists state lengths."""

    to_fetch_unmeasured: int = 0
    """In a dry run, how many of these have no stated length."""

    from_mirrors: int = 0
    """Resources that mirrors have sent."""

    patched: int = 0
    """Updates that were done by patches, and how many octets fewer that was than to fetch them whole."""

    octets_saved: int = 0
    ways: list[TransferWay] = []
    held: int = 0
    base: str | None = None
    at: str | None = None
    position: str | None = None
    complete: bool = True
    fault: str | None = None
    failures: list[FailedTransfer] = []
    unverified: int = 0
    """Of a copy of the past: earlier states that no hash has verified."""

    unverified_versions: list[UnverifiedVersion] = []
    dataset: DatasetReport | None = None
    """Where a triplestore follows the RDF dataset of the set."""

    plan: list[PlannedAction] = []
    plan_is_cut: bool = False
    exit_status: int = Exit.DONE


class SyncReport(msgspec.Struct, kw_only=True):
    """What a run did. `exit_status` is that of the command."""

    source: str
    destination: str
    as_of: str | None = None
    """Of a copy of the past: its moment."""

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
    """How long the source asks not to be polled, by a document's `Retry-After` (DST-C6)."""

    max_age_seconds: float | None = None
    """How long the polled documents stay fresh by their `Cache-Control` (DST-C6)."""

    untold: str | None = None
    """A mark while there are changes, of this run or of earlier ones, that no command of `--exec` has received."""

    exit_status: int = Exit.DONE

    def total(self, name: str) -> int:
        """The sum of one count over all sets."""
        return sum(getattr(one, name) for one in self.sets)

    @property
    def takes_nothing(self) -> bool:
        """Whether something was listed, and all of it left out by the user's filters."""
        others = ("held", "failed", "refused", "skipped")
        return self.total("left_out") > 0 and not (any(map(self.total, others)) or any(one.plan for one in self.sets))


_GRAVEST = (Exit.STORE, Exit.SOURCE, Exit.UNDETERMINED, Exit.TRANSFERS_FAILED, Exit.DONE)


def gravest_status(statuses: list[int]) -> int:
    """The exit status that counts when several apply."""
    return next((int(status) for status in _GRAVEST if status in statuses), int(Exit.DONE))
