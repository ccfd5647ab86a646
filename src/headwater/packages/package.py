"""A package read from a file: its manifest, and to each entry the member that it names."""

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from headwater.packages.faults import BadManifest, BadPath, PackageLimits, shown
from headwater.packages.member_paths import MANIFEST, possible_names
from headwater.packages.zip_reader import ZipDirectory, ZipMember, read_directory
from headwater.spec.kinds import RULES, Kind
from headwater.spec.reader import Reader
from headwater.spec.records import HASHLIB, STRONGEST, ChangeKind, Document, Entry
from headwater.spec.text_values import DocumentFault

MANIFESTS = (Kind.RESOURCE_DUMP_MANIFEST, Kind.CHANGE_DUMP_MANIFEST)
"""The kinds of documents that a package's manifest may have (DST-P7)."""


class PackageProblem(msgspec.Struct, frozen=True):
    """What is wrong with one entry or member, by the rule it breaks. `fails`: the entry cannot be had from the package;
    else it is told and goes on."""

    rule: str
    message: str
    subject: str
    fails: bool


_HEAD_OCTETS = 4_096
"""So much of a manifest is read at a time until its kind is known."""

MOST_PROBLEMS = 1_000
"""So many are remembered: a hostile manifest may have a million."""


class PackagedEntry(msgspec.Struct, frozen=True):
    """An entry of the manifest and the member with its content: None where it has none, or none that may be used."""

    entry: Entry
    member: ZipMember | None


class PackageFile:
    """One package whose central directory and manifest are in order so far (DST-P2, DST-P7)."""

    def __init__(
        self, directory: ZipDirectory, manifest: ZipMember, head: Document, base_uri: str | None = None
    ) -> None:
        """`head`: that of the manifest, as far as it is known with the first entry. `base_uri`: the URI of the package,
        by which its manifest may mean relative references."""
        self.directory = directory
        self.head = head
        self.kind = head.kind
        self.problems: list[PackageProblem] = []
        """What was found by `entries`, `undeclared` and `verify`; MOST_PROBLEMS that fail, and as many that do not."""
        self.untold = 0
        """How many more there are."""
        self.missing_count = 0
        """How many members that the manifest names the package has not."""
        self._told = {True: 0, False: 0}
        self._digests: dict[tuple[str, str | None], str | None] = {}
        """By member and algorithm (None: it was read alone): a million entries may name one member."""
        self.reader = Reader(base_uri=base_uri)
        """The reader of the manifest, with its head, counts and warnings."""
        self._manifest = manifest
        self._declared = {MANIFEST}
        if directory.leading:
            self._tell("DST-P6", f"{directory.leading:,} bytes come before the first member", MANIFEST)

    @property
    def document(self) -> Document | None:
        """The head of the manifest: final when the entries are exhausted."""
        return self.reader.document

    @property
    def manifest_digest(self) -> str:
        """Tells the octets of this manifest from those of any other that is not made to be taken for it."""
        return f"crc-32:{self._manifest.crc:08x} {self._manifest.octets}"

    def entries(self) -> Iterator[PackagedEntry]:
        """The entries in the order of the manifest, each with its member; once. Raises BadManifest, BadPackage."""
        for entries in self.listed():
            for entry in entries:
                for link in entry.links:
                    if link.path is not None:
                        self._find(link.path, entry.loc)
                member = None if entry.path is None else self._find(entry.path, entry.loc)
                if entry.path is None and entry.change != ChangeKind.DELETED:
                    rule = "RS-CDM-06" if self.kind == Kind.CHANGE_DUMP_MANIFEST else "RS-RDM-05"
                    self._tell(rule, "the entry has no path", entry.loc, fails=True)
                yield PackagedEntry(entry, member)

    def listed(self) -> Iterator[list[Entry]]:
        """The entries alone, as `entries` has them, some at a time; in place of it. Raises BadManifest, BadPackage."""
        for block in self.directory.blocks(self._manifest):
            yield _read(self.reader, block)
        yield _read(self.reader, None)

    def undeclared(self) -> list[ZipMember]:
        """Members that no entry names, when the entries are exhausted: told, and not to be used (DST-P4, RS-RDM-07)."""
        rest = [member for member in self.directory.members if member.name not in self._declared]
        for member in rest:
            self._tell("RS-RDM-07", "the manifest does not name this member", member.name)
        return rest

    def verify(self, packaged: PackagedEntry) -> bool:
        """Whether the member is what its entry says, by length and the strongest digest (DST-P5); what is not is among
        the problems. True where nothing is stated. Raises BadPackage when the member itself is damaged."""
        entry, member = packaged.entry, packaged.member
        if member is None:
            return False
        digests = {digest.algorithm: digest.hex for digest in entry.digests}
        algorithm = next((name for name in STRONGEST if name in digests), None)
        key = (member.name, algorithm)
        if key not in self._digests:
            hasher = hashlib.new(HASHLIB[algorithm], usedforsecurity=False) if algorithm else None
            for block in self.directory.blocks(member):
                if hasher is not None:
                    hasher.update(block)
            self._digests[key] = None if hasher is None else hasher.hexdigest()
        found = self._digests[key]
        if entry.length is not None and entry.length != member.octets:
            self._tell("DST-P5", f"{member.octets:,} octets instead of {entry.length:,}", entry.loc, fails=True)
            return False
        if algorithm is not None and found != digests[algorithm]:
            self._tell("DST-P5", f"another {algorithm} than the manifest says", entry.loc, fails=True)
            return False
        return True

    def _find(self, path: str, uri: str) -> ZipMember | None:
        """The member that a path means: literally, else percent-decoded (DST-P3, DST-P4, AMB-36)."""
        usual = self.directory.get(path[1:]) if path.startswith("/") else None
        if usual is not None and usual.name != MANIFEST:
            self._declared.add(usual.name)
            return usual
        try:
            names = possible_names(path)
        except BadPath as fault:
            self._tell("DST-P3", fault.what, uri, fails=True)
            return None
        if not path.startswith("/"):  # as RS-RDM-05 demands
            self._tell("AMB-36", "the path has no leading slash", uri)
        for name in names:
            if (member := self.directory.get(name)) is not None and name != MANIFEST:
                if name != names[0]:
                    self._tell("AMB-36", "the path is percent-encoded", uri)
                self._declared.add(name)
                return member
        self.missing_count += 1
        self._tell("DST-P4", f"the package has no member {shown(names[0])}", uri, fails=True)
        return None

    def _tell(self, rule: str, message: str, subject: str, *, fails: bool = False) -> None:
        self._told[fails] += 1
        if self._told[fails] > MOST_PROBLEMS:
            self.untold += 1
        else:
            self.problems.append(PackageProblem(rule, message, subject, fails))


def read_package(
    file: BinaryIO, limits: PackageLimits | None = None, *, kind: Kind | None = None, base_uri: str | None = None
) -> PackageFile:
    """Read a package's central directory and the head of its manifest. `kind`: the manifest that is expected (DST-P7).

    Raises BadPackage for what `read_directory` refuses, BadManifest when there is no `manifest.xml` at the root
    (RS-RDM-01, RS-CDM-01), it cannot be read, or is of another kind.
    """
    directory = read_directory(file, limits)
    manifest = directory.get(MANIFEST)
    if manifest is None:
        raise BadManifest("the package has no manifest.xml at its root")
    head = _head(directory, manifest)
    found = head.kind if head is not None else None
    if head is None or found not in MANIFESTS or kind not in (None, found):
        expected = " or ".join(f"a {RULES[one].title}" for one in ([kind] if kind else MANIFESTS))
        what = f"a {RULES[found].title}" if found else "no document"
        raise BadManifest(f"manifest.xml is {what}, not {expected}", rule="DST-P7")
    return PackageFile(directory, manifest, head, base_uri)


def _head(directory: ZipDirectory, manifest: ZipMember) -> Document | None:
    """The head of the manifest, read as far as that needs: to the end where the head comes last (AMB-04)."""
    reader = Reader()
    for block in directory.blocks(manifest):
        for start in range(0, len(block), _HEAD_OCTETS):
            _read(reader, block[start : start + _HEAD_OCTETS])
            if reader.document is not None and reader.document.kind in MANIFESTS:
                return reader.document
    _read(reader, None)
    return reader.document


def _read(reader: Reader, block: bytes | None) -> list[Entry]:
    """The entries that a block of the manifest completes; those at its end for None. Raises BadManifest."""
    try:
        return reader.close() if block is None else reader.feed(block)
    except DocumentFault as fault:
        where = "" if fault.line is None else f" in line {fault.line}"
        raise BadManifest(f"manifest.xml cannot be read{where}: {fault.what}", rule=fault.rule) from fault
