"""The Resource Dump of a set: which page is packed next, its packages, and the document that names them.

The packages of a page are made anew when enough of the page has changed, when a change has waited long enough, or when
they have grown old; a page that has none yet comes first. So a dump that is offered has packages of all pages that its
own packages' times know of: a resource on a page that came later was created after the `at` of the dump.

A resource that was deleted and came back on another page may be in packages of both while the first is not made anew;
both changes are later than the `at` of the dump, so that whoever goes on by them comes to the right state.

A resource whose octets are not the recorded ones is left out. The next scan finds what has changed: a change tells of
it then, which is later than the dump, or it is as it was after all. Its page is packed anew as one that has changed.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Final

import msgspec

from headwater.catalog.content import Absence, ContentReader, NoContent
from headwater.catalog.interface import WITHDRAWN, Page, Resource, SetSnapshot
from headwater.progress import Notice, Progress
from headwater.publish import document_content
from headwater.publish.added_links import EntryPlace
from headwater.publish.document_names import RESOURCE_DUMP
from headwater.publish.package_builder import (
    NOTHING_PACKED,
    Packing,
    PackResult,
    ResourcePaths,
    SpooledPackage,
    entry_octets,
)
from headwater.publish.plan import Refresh, completed_at
from headwater.publish.publication_state import PagePackages, ResourceDumpState, ResourcePackage, fingerprint
from headwater.publish.site import SetSettings, capability_list_name, resource_dump_name, resource_package_names
from headwater.publish.store_writer import PublicationJob
from headwater.quantities import FLOOR, needs_consent
from headwater.spec.kinds import Kind
from headwater.spec.times import to_microseconds

_TELL_EVERY: Final = 500


class PackingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is due: a page to pack, or (None) only to offer the dump; `filled` are the pages that have resources.

    `at` is the newest time that the catalog has given when the page is read: it holds all changes up to then, and
    every later one has a later time.
    """

    page: Page | None
    filled: frozenset[int]
    at: dt.datetime


def next_packing(
    state: ResourceDumpState, snapshot: SetSnapshot, settings: SetSettings, now: dt.datetime
) -> PackingPlan | None:
    """What is to be done next; None when nothing is due."""
    filled = frozenset(page.number for page in snapshot.pages if page.count)
    moment = snapshot.state.last_at or snapshot.state.opened_at
    assert moment is not None
    packed = {one.number: one for one in state.pages}
    new = next((page for page in snapshot.pages if page.count and page.number not in packed), None)
    if new is not None or not state.is_offered:
        return PackingPlan(page=new, filled=filled, at=moment)
    due: list[tuple[dt.datetime, int, PackingPlan]] = []
    for page in snapshot.pages:
        if (held := packed.get(page.number)) is None:
            continue
        # Where the clock was set back, nothing waits until it has caught up.
        age = abs((now - (held.packed_at or held.completed)).total_seconds())
        changed = page.touched - held.touched
        is_changed = changed > 0 and (not page.count or changed >= settings.dump_share * page.count)
        is_old = age >= settings.renew_seconds or (bool(changed or held.left_out) and age >= settings.dump_seconds)
        if is_changed or is_old:
            due.append((held.completed, page.number, PackingPlan(page=page, filled=filled, at=moment)))
    return min(due)[2] if due else None


def resource_dump_names(name: str, state: ResourceDumpState) -> Iterator[str]:
    """The dump, once it is offered; the packages with the copies of their manifests."""
    if state.is_offered:
        yield resource_dump_name(name)
    for page in state.pages:
        yield from package_names(name, page)


def publish_resource_dump(job: PublicationJob) -> tuple[ResourceDumpState, bool]:
    """Forget packages that were lost or have another shape; the new state, and whether packages are withdrawn.

    These hold what the settings have taken out of the set since, which must not be shown any more: they go at once.
    Nothing is packed here, so that Change Lists never wait for packages.
    """
    shape = f"{job.publication.generation} {fingerprint(job.context.site, job.settings)}"
    state = job.publication.resource_dump
    if state is None or state.shape != shape:
        state = ResourceDumpState(shape=shape, at=job.at)
    newest = {int(row.key): row.rank for row in job.context.catalog.rows_of(job.name, WITHDRAWN)} if state.pages else {}
    shown = tuple(one for one in state.pages if to_microseconds(one.at) > newest.get(one.number, -1))
    is_withdrawn = len(shown) < len(state.pages)
    if job.refresh is Refresh.ALL:
        is_sound = job.context.is_as_left
        shown = tuple(one for one in shown if all(map(is_sound, package_names(job.name, one))))
    if len(shown) < len(state.pages):
        state = msgspec.structs.replace(state, pages=shown, is_offered=False)
    if job.refresh is Refresh.ALL and state.is_offered:
        job.store_writer.document(*document_content.resource_dump(job.context.site, job.name, state))
    return state, is_withdrawn


def pack_resources(packing: Packing, settings: SetSettings, *, stop: Callable[[], None]) -> PackResult:
    """Make the packages of the page that is due, and name them (`Publisher.pack_resources`)."""
    name, contents = settings.name, packing.options.contents
    found = packing.look(settings) if settings.dump else None
    before = None if found is None else found[1].resource_dump
    if contents is None or found is None or before is None:
        return NOTHING_PACKED
    (snapshot, publication), context = found, packing.context
    due = next_packing(before, snapshot, settings, context.clock())
    if due is None:
        return NOTHING_PACKED
    packed = None
    pages = list(before.pages)
    if due.page is not None:
        pages = [one for one in pages if one.number != due.page.number]
    if due.page is not None and due.page.count:
        packed = _pack_page(packing, contents, settings, publication.generation, due, due.page, stop)
        ours = sum(one.entries for one in packed.packages) + packed.left_out
        # As many as would be held back if they were deleted (DST-F9): a disk that is not mounted looks so. A few
        # never count, unless they are all that the set has.
        is_much = packed.left_out > FLOOR or due.filled <= {due.page.number}
        if is_much and needs_consent(packed.left_out, ours):
            if name not in packing.held_back:
                packing.held_back.add(name)
                text = f"the Resource Dump stays as it is: {packed.left_out:,} resources of one page cannot be read"
                context.listener(Notice("HW-PUB-14", text, set_name=name))
            return NOTHING_PACKED
        packing.held_back.discard(name)
        pages = sorted([*pages, packed], key=lambda one: one.number)
    is_whole = due.filled <= {one.number for one in pages} | ({due.page.number} if due.page else set())
    state = msgspec.structs.replace(
        before, pages=tuple(pages), at=before.at if pages else due.at, is_offered=before.is_offered or is_whole
    )

    documented = [document_content.resource_dump(context.site, name, state)] if state.is_offered else []
    if state.is_offered and not before.is_offered:  # from now on the Capability List names it
        whole = document_content.capability_list(context.site, settings, with_later=True)
        documented.append((capability_list_name(name), *whole))
    names = () if packed is None else package_names(name, packed)
    packing.name(RESOURCE_DUMP, settings, publication, state, resource_dump_names, names, documented)
    return PackResult(is_done=True, is_offered=before.is_offered)


def _pack_page(
    packing: Packing,
    contents: ContentReader,
    settings: SetSettings,
    generation: str,
    due: PackingPlan,
    page: Page,
    stop: Callable[[], None],
) -> PagePackages:
    """Make the packages of a page and put them, with copies of their manifests, into the store (RS-RDM-01 … 07).

    A resource whose octets cannot be read, or are not the recorded ones, is left out. Raises OSError of the spool,
    the store's and the catalog's faults; the packages are then made again the next time.
    """
    context, name, site = packing.context, settings.name, packing.context.site
    listed = list(context.catalog.page(name, page.number))
    packages: list[ResourcePackage] = []
    left_out = 0

    def new_package() -> SpooledPackage[Resource]:
        return packing.package(settings, generation, EntryPlace.RESOURCE_DUMP_MANIFEST, stop)

    def finish() -> None:
        with closing(package):
            if package.packed:
                octets, sha256 = package.put(
                    # Without `completed`, so that the same state gives the same octets (RS-RDM-02).
                    document_content.head_of(
                        Kind.RESOURCE_DUMP_MANIFEST, document_content.set_links(site, name, None), at=due.at
                    ),
                    lambda rows: document_content.resource_entries(rows, site.resource_prefix(name)),
                    partial(resource_package_names, name, page.number, len(packages)),
                    latest=due.at,
                )
                packages.append(ResourcePackage(entries=len(package.packed), octets=octets, hash=sha256))

    package, paths = new_package(), ResourcePaths()
    try:
        for seen, row in enumerate(listed, 1):
            content = contents.open(name, row)
            why: Absence | None
            if isinstance(content, NoContent):
                why = content.why
            else:
                octets, path = content.octets, paths.take(row.uri)
                if not package.builder.reserve(octets, entry_octets(row, path)):
                    try:
                        finish()
                        package, paths = new_package(), ResourcePaths()
                    except BaseException:
                        content.close()
                        raise
                    path = paths.take(row.uri)
                    package.builder.reserve(octets, entry_octets(row, path))
                why = package.take(path, content, row.metadata)
            if why is None:
                package.packed.append((row, {"path": path, "length": octets}))
            else:
                left_out += why is not Absence.ELSEWHERE
            if seen % _TELL_EVERY == 0 or seen == len(listed):
                context.listener(Progress("packing", seen, len(listed)))
        finish()
    finally:
        package.close()
    now = context.clock()
    return PagePackages(
        number=page.number,
        touched=page.touched,
        at=due.at,
        completed=completed_at(due.at, now, context.catalog.state(name)),
        left_out=left_out,
        packages=tuple(packages),
        packed_at=now,
    )


def package_names(name: str, page: PagePackages) -> Iterator[str]:
    """The names of a page's packages and of the copies of their manifests."""
    for part, one in enumerate(page.packages):
        yield from resource_package_names(name, page.number, part, one.hash)
