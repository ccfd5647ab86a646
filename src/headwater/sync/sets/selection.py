"""Names of sets, made of addresses and unique in one source, and the selection of sets by name or URI.

A set is said by its Capability List's URI, or by its name. A name decides only when no other address that is listed
could come by it, whichever of them turn out to be sets: what is chosen early, where the Source Description alone
decides it, is what reading everything would give.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from headwater.errors import UsageFault
from headwater.spec.records import Entry
from headwater.spec.uris import normalise
from headwater.sync.options import SyncOptions
from headwater.sync.state import SetRow

# set names

_GENERIC = re.compile(
    r"(capability[-_]?list|capabilities|caps?|resource[-_]?list|change[-_]?list|sitemap|index|)\Z", re.I
)
_NUMBERED = re.compile(r"(.+)-[0-9]+\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_PART = 80
_LONGEST_NAME = 200  # a set's folder has its name, of which file systems take 255 octets; a number may follow


class SetNames:
    """The set names in use, compared without regard to case."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._taken

    def free(self, name: str) -> str:
        """The name, or one like it that is not taken yet; now it is."""
        return self.take(name) if name not in self else self.numbered(name)

    def take(self, name: str) -> str:
        """This name, taken from now on."""
        self._taken.add(name.lower())
        return name

    def numbered(self, stem: str) -> str:
        """The stem with the lowest number that makes a name which is not taken yet; now it is."""
        number = self._numbers.get(stem.lower(), 2)
        while f"{stem}-{number}" in self:
            number += 1
        self._numbers[stem.lower()] = number + 1
        return self.take(f"{stem}-{number}")


def names_of(identities: Sequence[str]) -> list[str]:
    """A name for each of these addresses, in their order: the plainest that no earlier one has."""
    names = SetNames()
    found = []
    for identity in identities:
        *plain, stem = _possible_names(identity)
        free = next((name for name in plain if name not in names), None)
        found.append(names.numbered(stem) if free is None else names.take(free))
    return found


def sole_owner(name: str, identities: Sequence[str]) -> str | None:
    """The only of these addresses that can come by a name, whichever of the others turn out to be sets."""
    forms = {name.lower()}
    if numbered := _NUMBERED.match(name.lower()):
        forms.add(numbered[1])
    able = [one for one in identities if not forms.isdisjoint(form.lower() for form in _possible_names(one))]
    owner = dict(zip(names_of(identities), identities, strict=True)).get(name)
    return owner if able == [owner] else None


def _possible_names(identity: str) -> list[str]:
    """The names that fit an address, the plainest first; last what a number is put to when all are taken."""
    parts = urlsplit(identity)
    path = parts.path
    folders = [_fit(part) for part in path.split("/")[:-1] if _fit(part)]
    stem = _fit(path.rpartition("/")[2].partition(".")[0])
    generic = _GENERIC.match(stem) is not None
    telling = [one for one in folders if one != "well-known"]
    if generic and stem and not parts.query:  # the list of a whole host
        telling = telling or [_fit(parts.netloc)]
    first = [telling[-1]] if generic and telling else [stem] if stem else []
    joined = "-".join([*folders, stem or "set"])[-_LONGEST_NAME:].lstrip("-._")
    return [*first, joined, (folders or [stem or "set"])[-1]]


def _fit(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._")[:_LONGEST_PART]


class SetSelection(msgspec.Struct, frozen=True):
    """The `--set` options, and the identity of each remembered set by its name."""

    said: tuple[str, ...] = ()
    remembered: Mapping[str, str] = {}


def choose_sets(listed: Sequence[str], wanted: SetSelection) -> dict[str, str] | None:
    """The name of each set that is meant, by its address; None when only reading all that is listed can tell.

    `listed` are different addresses, in document order, in which those that are meant come too. A remembered set that
    is not among them may have moved to one of them (DST-F10).
    """
    known = {identity: name for name, identity in wanted.remembered.items()}
    names = dict(zip(listed, names_of(listed), strict=True))
    remembered = SetNames(known.values())
    chosen: set[str] = set()
    for said in wanted.said:
        identity = wanted.remembered.get(said, said if said in names else sole_owner(said, listed))
        if identity is None or identity not in names:
            return None
        is_new_name = said != identity and said not in wanted.remembered
        if is_new_name and (identity in known or said in remembered):
            return None
        chosen.add(identity)
    if not (chosen <= known.keys() or known.keys() <= names.keys()):
        return None
    return {identity: known.get(identity, names[identity]) for identity in listed if identity in chosen}


MOST_SETS = 100_000
"""How many sets of one source are looked at."""


def own_entries(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries of a Source Description without those that show, in another form, a set that it names as well.

    Such a one has a `canonical` link to the other (RFC 6596): its resources would be copied twice.
    """
    linked = {entry.loc: link.href for entry in entries if entry.links and (link := entry.link("canonical"))}
    doubles = {loc: normalise(href) for loc, href in linked.items() if normalise(href) != normalise(loc)}
    if not doubles:
        return entries
    others = {normalise(entry.loc) for entry in entries if entry.loc not in doubles}
    return [entry for entry in entries if doubles.get(entry.loc) not in others]


_MOST_NAMES = 50


def wanted_of(options: SyncOptions, known: Sequence[SetRow]) -> SetSelection:
    """What the user wants of the sets of a source, some of which are known."""
    return SetSelection(options.sets, {row.name: row.offer.identity for row in known})


def takes_sitemaps(options: SyncOptions, known: Sequence[SetRow]) -> bool:
    """Whether a plain Sitemap counts as a Resource List: as asked for now, or when the copy was begun (DST-A3)."""
    return options.sitemap or any(row.offer.is_sitemap for row in known)


def pick(rows: list[SetRow], wanted: Sequence[str], where: str) -> list[SetRow]:
    """The sets that are meant. Raises UsageFault when one is said that is not there."""
    chosen = [row for row in rows if row.name in wanted or row.offer.identity in wanted]
    unknown = set(wanted) - {row.name for row in chosen} - {row.offer.identity for row in chosen}
    if unknown:
        raise unknown_set(unknown, [row.name for row in rows], where)
    return chosen


def unknown_set(unknown: set[str], names: Sequence[str], where: str) -> UsageFault:
    """The error that names sets which are not there, and those that are."""
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    told = ", ".join(names[:_MOST_NAMES]) + more
    return UsageFault(f"no set {', '.join(sorted(unknown))}; the sets are: {told}", code="HW-SYN-06", where=where)
