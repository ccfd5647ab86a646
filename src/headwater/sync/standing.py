"""How one set stands while a run works on it: what is remembered of it, what is offered, and what is to be told."""

from __future__ import annotations

import msgspec

from headwater.errors import HeadwaterError, SourceFault
from headwater.spec.kinds import Kind
from headwater.sync.filters import Choice, Scope, hosts_of, origin_of
from headwater.sync.kit import Kit
from headwater.sync.options import Options, SetReport
from headwater.sync.position import Position
from headwater.sync.reading.capabilities import offer_of
from headwater.sync.state import (
    SOURCE,
    SetRow,
    forget_documents,
    keep_moved,
    keep_offer,
    keep_position,
    keep_validators,
    one_set,
)


def signature_of(options: Options) -> str:
    """What is chosen of the resources of a set, as it is remembered."""
    chosen = (options.include, options.exclude, options.allow_hosts, options.any_host)
    return msgspec.json.encode((*chosen, options.skip_hosts) if options.skip_hosts else chosen).decode()


class Chosen(msgspec.Struct, frozen=True, array_like=True):
    """What `signature_of` has written down."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    any_host: bool
    skip_hosts: tuple[str, ...] = ()

    @property
    def choice(self) -> Choice:
        """Which resources are let in."""
        return Choice(self.include, self.exclude, hosts_of(self.skip_hosts))


def chosen_of(signature: str) -> Chosen:
    """What was chosen of the resources of a set when it was last brought up to date."""
    return msgspec.json.decode(signature, type=Chosen)


class Standing:
    """One set in a run; `row` is what is remembered, `offer` what is worked with, `report` what is told at the end."""

    def __init__(self, kit: Kit, row: SetRow, scope: Scope) -> None:
        self.kit = kit
        self.row = row
        self.offer = row.offer
        self.scope = scope
        self.choice = Choice(kit.options.include, kit.options.exclude, hosts_of(kit.options.skip_hosts))
        self.signature = signature_of(kit.options)
        self.statuses: list[int] = []
        self.since: Position | None = None
        """From where changes are to be read again, where that is not the position itself."""

        self.report = SetReport(name=row.name, folder=row.folder, capability_list=row.offer.capability_list)
        self._refreshed = False

    @property
    def rescoped(self) -> bool:
        """Whether another choice of resources holds than for all that was done so far."""
        return self.row.scope not in (None, self.signature)

    def say(self, fault: HeadwaterError) -> None:
        """Put a fault into the report: the set is not complete."""
        self.statuses.append(fault.exit_status)
        self.report.complete = False
        self.report.fault = self.report.fault or str(fault)
        self.warn(fault.rule or fault.code, f"{fault.what}. {fault.todo}", fault.where)

    def warn(self, rule: str, message: str, where: str | None = None) -> None:
        """Tell a person, once."""
        self.kit.documents.warn(rule, message, where)

    def note(self, process: str) -> None:
        """Put a process that was carried out into the report."""
        known = self.report.process
        if process not in known:
            self.report.process = process if known == "none" else f"{known}+{process}"

    def reload(self) -> None:
        """Take what is remembered as it now is."""
        with self.kit.database.write() as t:
            self.row = one_set(t, self.row.id)

    def start_over(self) -> None:
        """Without a Resource List only the changes themselves tell what another choice lets in: all are read again."""
        with self.kit.database.write() as t:
            forget_documents(t, self.row.id)
            keep_position(t, self.row.id, Position())
        self.reload()

    def has_moved(self) -> bool:
        """Whether the Capability List is permanently redirected to a host that is in no scope yet (DST-F10)."""
        uri = self.offer.capability_list
        if uri is None:
            return False
        try:
            look = self.kit.documents.look(uri)
        except SourceFault:
            return False
        origin = origin_of(look.moved_to) if look.moved_to and look.document is not None else None
        if origin is None or origin in self.scope.origins:
            return False
        self.scope = msgspec.structs.replace(self.scope, origins=self.scope.origins | {origin})
        with self.kit.database.write() as t:
            keep_moved(t, SOURCE, uri, look.moved_to)
        return True

    def refresh_offer(self) -> bool:
        """Read the Capability List anew, and say whether it names other documents by now (DST-C5)."""
        uri = self.offer.capability_list
        if uri is None or self._refreshed:
            return False
        self._refreshed = True
        try:
            look = self.kit.documents.look(uri)
        except SourceFault:
            return False
        if look.document is None or look.document.kind is not Kind.CAPABILITY_LIST:
            return False
        fresh = offer_of(look, self.offer.description, self.kit.documents)
        fresh = msgspec.structs.replace(fresh, name=self.offer.name, identity=self.offer.identity)
        changed = (fresh.resource_list, fresh.change_list) != (self.offer.resource_list, self.offer.change_list)
        if changed and (fresh.resource_list or fresh.change_list):
            self.offer = fresh
            with self.kit.database.write() as t:
                keep_offer(t, self.row.id, fresh)
                moved = self.kit.documents.moved.get(uri)
                keep_validators(t, SOURCE, uri, look.etag, look.last_modified, moved)
        return changed
