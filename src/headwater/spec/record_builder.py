"""Builds records (document, entries, links) from the start and end of XML elements, in whatever order they come.

The parser calls `start`, `end` and `text`; entries and the document's head come out. Nothing is kept of an entry once
it is complete. Names are `namespace name` with one space, as expat gives them.
"""

from collections.abc import Callable, Set
from typing import Any, Final

from headwater.spec import text_values as values
from headwater.spec.kinds import DOCUMENT_ENTRIES, HEADWATER, RS, SITEMAP, Kind, ReadLimits, Root, kind_of, usual_name
from headwater.spec.records import AbsenceReason, AbsentResource, ChangeKind, Document, Entry, Link
from headwater.spec.text_values import LimitExceeded, NotSitemap, ReaderWarnings
from headwater.spec.uris import is_absolute, resolve

Attributes = list[str]
"""Names and values in turn, as expat's `ordered_attributes` gives them."""

_MD, _LN = f"{RS} md", f"{RS} ln"
_ABSENT = f"{HEADWATER} absent"
_REASONS: Final = {reason.value: reason for reason in AbsenceReason}
_ROOTS: Final = {f"{SITEMAP} {root.value}": root for root in Root}
_ENTRIES: Final = {f"{SITEMAP} url": Root.URLSET, f"{SITEMAP} sitemap": Root.SITEMAPINDEX}
_TEXTS: Final = {f"{SITEMAP} {name}": name for name in ("loc", "lastmod", "changefreq", "priority")}
_SPACE: Final = " \t\r\n"

_Parse = Callable[[str, ReaderWarnings], Any]
_ROOT_MD: Final[dict[str, _Parse]] = {
    "capability": values.capability,
    "at": values.moment,
    "completed": values.moment,
    "from": values.moment,
    "until": values.moment,
}
_ENTRY_MD: Final[dict[str, _Parse]] = _ROOT_MD | {
    "change": values.change,
    "datetime": values.moment,
    "hash": values.digests,
    "length": values.number,
    "type": values.media_type,
    "path": values.path,
    "encoding": values.token,
}
_LINK: Final[dict[str, _Parse]] = {
    "encoding": values.token,
    "hash": values.digests,
    "length": values.number,
    "modified": values.moment,
    "path": values.path,
    "pri": values.priority,
    "type": values.media_type,
    "profile": values.token,
}
_MD_NAMES: Final = _ENTRY_MD.keys() | {"modified"}
_LN_NAMES: Final = _LINK.keys() | {"href", "rel"}
_MERGED: Final = "several rs:md in an entry were read as one"
_CONTRADICTORY: Final = "an entry that gives an attribute two values was skipped (DST-F5)"
_IS_DATASET: Final = "isDataset"
_OF_A_REPRESENTATION: Final = ("hash", "length", "type", "encoding")
_OF_CAPABILITIES: Final = (
    Kind.SOURCE_DESCRIPTION,
    Kind.SOURCE_DESCRIPTION_INDEX,
    Kind.CAPABILITY_LIST,
    Kind.CAPABILITY_LIST_INDEX,
)
_STARTS_OF_HTML: Final = frozenset({"html", "head", "body"})


class RecordBuilder:
    """Builds the records of one document. `entries` collects what is complete until the reader takes it away."""

    def __init__(self, base_uri: str | None, limits: ReadLimits, warnings: ReaderWarnings) -> None:
        self.root: Root | None = None
        self.depth = 0
        self.entries: list[Entry] = []
        self.entry_count = 0
        self.skipped_count = 0
        self.absent_count = 0
        self.saw_datetime = False
        self.saw_undated_change = False
        self._base = base_uri
        self.limits = limits
        self._warnings = warnings
        self.document: Document | None = None
        """The head as far as it is known; None until the root's `rs:md` or the end has been seen."""
        self._head: dict[str, Any] | None = None
        """What the root's `rs:md` states."""
        self._root_links: list[Link] = []
        self._absent: list[AbsentResource] = []
        self._kind: Kind | None = None
        self._skip_below = 0  # depth of the element whose inside means nothing; 0: none
        self._in_entry = False
        self._entry_root: Root | None = None
        self._texts: dict[str, str] = {}
        self._md: Attributes | None = None
        self._of_several = ""  # what is told of several rs:md
        self._told_spelling = False
        self._links: list[Link] = []
        self._field: str | None = None
        self._pieces: list[str] = []
        self._piece_length = 0

    # -- what the parser calls ----------------------------------------------------------------------------------------

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins."""
        self.depth = depth = self.depth + 1
        if attributes:
            self._bound(attributes)
        if self._skip_below:
            if depth > self.limits.depth:
                raise LimitExceeded(f"elements nested more than {self.limits.depth} deep")
            return
        if depth == 3 and self._in_entry:
            if (field := _TEXTS.get(name)) is not None and field not in self._texts and not attributes:
                self._field = field
            elif name == _MD and self._md is None:
                self._md = attributes
            else:
                self._start_unusual_in_entry(name, attributes)
        elif depth == 2:
            self._start_below_root(name, attributes)
        elif depth == 1:
            self.root = _ROOTS.get(name) or _ROOTS.get(self._usual(name))
            if self.root is None:
                space, _, local = name.rpartition(" ")
                what = f"the root element is {local[:100]}, not urlset or sitemapindex"
                if local.lower() in _STARTS_OF_HTML:
                    what = "a web page (HTML), not a ResourceSync document"
                elif local in ("urlset", "sitemapindex"):
                    what = f"the root {local} is not in the namespace {SITEMAP} but in {space or 'none'}"[:400]
                raise NotSitemap(what)
        else:
            self._skip("RS-DOC-18", "an element inside an element that has none was skipped", name)

    def end(self, name: str) -> None:
        """An element ends."""
        depth = self.depth
        self.depth = depth - 1
        if self._skip_below:
            if depth == self._skip_below:
                self._skip_below = 0
        elif depth == 3:
            if self._field is not None:
                self._texts[self._field] = "".join(self._pieces)
                self._field, self._pieces, self._piece_length = None, [], 0
        elif depth == 2 and self._in_entry:
            self._in_entry = False
            if self._of_several:
                self._warnings.warn("AMB-91", self._of_several, self._texts.get("loc", "").strip(_SPACE))
            if self._of_several == _CONTRADICTORY:
                self.skipped_count += 1
                return
            if self._entry_root is self.root or self._goes_by(self._entry_root):
                self.add(self._texts, self._md, tuple(self._links))

    def text(self, data: str) -> None:
        """Characters of the element being read; bounded, for they come in pieces."""
        if self._field is None or self._skip_below:
            return
        self._piece_length += len(data)
        if self._piece_length > self.limits.text_length:
            raise LimitExceeded(f"a {self._field} of more than {self.limits.text_length:,} characters")
        self._pieces.append(data)

    # -- what comes out -----------------------------------------------------------------------------------------------

    @property
    def found_count(self) -> int:
        """Elements read so far that a list may have any number of."""
        return self.entry_count + self.skipped_count + self.absent_count

    @property
    def room(self) -> int:
        """How many entries may still come."""
        return self.limits.entries - self.entry_count

    @property
    def takes_usual_entries(self) -> bool:
        """Whether a `url` of the usual shape means here what it means in a list of resources or changes."""
        return self.root is Root.URLSET and not self._expects_capability_lists

    @property
    def _expects_capability_lists(self) -> bool:
        """Whether an entry without a capability is a Capability List here (AMB-01)."""
        return self._kind is Kind.SOURCE_DESCRIPTION or self._kind is Kind.SOURCE_DESCRIPTION_INDEX

    def finish(self) -> Document:
        """The end of the document: its head, final."""
        if self._head is None:
            self._warnings.warn("AMB-02", "no rs:md below the root: this is a plain Sitemap")
            self._head = {}
        return self._set_head()

    def _goes_by(self, root: Root | None) -> bool:
        """Whether an entry of the other root is read: the first one tells what the document is (AMB-93).

        A list is never taken for a resource, and a `url` without metadata in an index may be one.
        """
        is_list = root is Root.SITEMAPINDEX
        if self._kind in _OF_CAPABILITIES or not (
            is_list or {"hash", "length", "change"}.intersection((self._md or ())[::2])
        ):
            return True
        if self.found_count:
            self.skipped_count += is_list
            self._warnings.warn(
                "AMB-93", "a list among the resources was skipped" if is_list else "a resource in an index"
            )
            return not is_list
        self.root = root
        self._warnings.warn("AMB-93", "the entries tell whether this is a list or an index, not the root element")
        if self._head is not None:
            self._set_head()
        return True

    def add(self, texts: dict[str, str], md: Attributes | None, links: tuple[Link, ...]) -> None:
        """One entry from its raw texts; the only way in which an entry with anything to forgive comes about."""
        warnings = self._warnings
        loc = texts.get("loc", "").strip(_SPACE)
        if not loc:
            self.skipped_count += 1
            warnings.warn("DST-F5", "an entry without loc was skipped (RS-DOC-08)")
            return
        self.count(1)
        fields: dict[str, Any] = {"loc": self._uri(loc)}
        if (text := texts.get("lastmod")) is not None:
            fields["lastmod"] = values.moment(text.strip(_SPACE), warnings)
        if (text := texts.get("changefreq")) is not None:
            fields["changefreq"] = values.frequency(text, warnings)
        if md:
            self._read(_ENTRY_MD, self._plain(md, fields), fields)
        if links:
            fields["links"] = links
        change = fields.get("change")
        if change is ChangeKind.DELETED and any(fields.get(name) is not None for name in _OF_A_REPRESENTATION):
            warnings.warn("AMB-34", "hash, length, type or encoding of a deleted resource was ignored")
            for name in _OF_A_REPRESENTATION:
                fields.pop(name, None)
        if fields.get("capability") is None and self._expects_capability_lists:
            warnings.warn("AMB-01", "an entry without capability was taken as a Capability List")
            fields["capability"] = "capabilitylist"
        self.saw_datetime |= fields.get("datetime") is not None
        self.saw_undated_change |= change is not None and fields.get("lastmod") is None
        self.entries.append(Entry(**fields))

    def count(self, more: int) -> None:
        """Count entries against the limit. Raises LimitExceeded before one too many is taken."""
        self.entry_count += more
        if self.entry_count > self.limits.entries:
            self.entry_count -= more
            raise LimitExceeded(f"more than {self.limits.entries:,} entries")
        if self.entry_count > DOCUMENT_ENTRIES >= self.entry_count - more:
            self._warnings.warn("RS-LIM-01", f"more than {DOCUMENT_ENTRIES:,} entries in one document")

    # -- the places ---------------------------------------------------------------------------------------------------

    def _start_below_root(self, name: str, attributes: Attributes) -> None:
        root = _ENTRIES.get(name)
        if root is not None:
            if root is not self.root:
                self._warnings.warn(
                    "RS-DOC-07", "url in a sitemapindex, or sitemap in a urlset, read nevertheless", name
                )
            if attributes:
                self._warnings.warn("RS-DOC-09", "attributes of url or sitemap were ignored", attributes[0])
            self._in_entry, self._entry_root = True, root
            self._texts = {}
            self._md = None
            self._of_several = ""
            self._links = []
        elif name == _MD:
            self._take_root_md(attributes)
        elif name == _LN:
            self._root_links += self._links_of(attributes, len(self._root_links))
            if self._head is not None:
                self._set_head()
        elif name == _ABSENT:
            self._take_absent(attributes)
        elif (usual := self._usual(name)) != name:
            self._start_below_root(usual, attributes)
        else:
            self._skip_unknown(name)

    def _take_absent(self, attributes: Attributes) -> None:
        """One resource that a package made on demand does not hold (docs/reference/addresses-and-additions.md)."""
        found = dict(zip(attributes[::2], attributes[1::2], strict=True))
        self._skip_below = self.depth
        uri = found.get("uri", "").strip(_SPACE)
        if not uri:
            self._warnings.warn("RS-DOC-18", "an absent resource without its uri was ignored")
            return
        self.absent_count += 1
        if self.absent_count > self.limits.entries:
            raise LimitExceeded(f"more than {self.limits.entries:,} absent resources")
        self._absent.append(AbsentResource(self._uri(uri), _REASONS.get(found.get("reason", ""))))

    def _start_unusual_in_entry(self, name: str, attributes: Attributes) -> None:
        field = _TEXTS.get(name)
        if field is not None:
            if field in self._texts:
                rule = "RS-DOC-08" if field == "loc" else "RS-DOC-14"
                self._skip(rule, "a second loc, lastmod or changefreq was ignored", field)
                return
            if attributes:
                self._warnings.warn("RS-DOC-09", "attributes of a Sitemap element were ignored", attributes[0])
            self._field = field
        elif name == _MD:
            self._add_md(attributes)
        elif name == _LN:
            self._links += self._links_of(attributes, len(self._links))
        elif (usual := self._usual(name)) != name:
            self._start_unusual_in_entry(usual, attributes)
        else:
            self._skip_unknown(name)

    def _add_md(self, attributes: Attributes) -> None:
        """One more `rs:md` of an entry: what it states is added; a second value makes the entry unusable (AMB-91)."""
        if self._md is None:
            self._md = attributes
            return
        self._of_several = self._of_several or _MERGED
        had = dict(zip(self._md[::2], self._md[1::2], strict=True))
        for name, value in zip(attributes[::2], attributes[1::2], strict=True):
            if had.setdefault(name, value).strip(_SPACE) != value.strip(_SPACE):
                self._of_several = _CONTRADICTORY
        self._md = [part for pair in had.items() for part in pair]
        self._bound(self._md)

    def _usual(self, name: str) -> str:
        """The name in our namespace where its own is ours in another spelling, which is told once (AMB-97)."""
        usual = usual_name(name)
        if usual != name and not self._told_spelling:
            self._told_spelling = True
            self._warnings.warn("AMB-97", "a namespace was read as the usual one", name.rpartition(" ")[0])
        return usual

    def _skip_unknown(self, name: str) -> None:
        """Skip an element; one of another namespace is an extension, which the Sitemap protocol allows."""
        space = name.rpartition(" ")[0]
        if space in ("", SITEMAP, RS):
            self._warnings.warn("RS-DOC-18", "an unknown element was skipped", name)
        self._skip_below = self.depth

    def _skip(self, rule: str, message: str, name: str) -> None:
        self._warnings.warn(rule, message, name)
        self._skip_below = self.depth

    # -- attributes ---------------------------------------------------------------------------------------------------

    def _bound(self, attributes: Attributes) -> None:
        limits = self.limits
        if len(attributes) > 2 * limits.attributes:
            raise LimitExceeded(f"an element with more than {limits.attributes} attributes")
        if len("".join(attributes)) > limits.attribute_length:
            raise LimitExceeded(f"attributes of more than {limits.attribute_length:,} characters")

    def _take_root_md(self, attributes: Attributes) -> None:
        if self._head is not None:
            self._warnings.warn("AMB-05", "a second rs:md below the root was ignored")
            return
        if self.entry_count or self.skipped_count:
            self._warnings.warn("AMB-04", "the root's rs:md comes after entries")
        self._head = {}
        self._read(_ROOT_MD, self._plain(attributes, self._head), self._head)
        if self._head.get("capability") is None:
            self._warnings.warn("RS-DOC-04", "the root's rs:md has no capability")
        self._set_head()

    def _set_head(self) -> Document:
        """Make the head of what is known."""
        head = self._head or {}
        self._kind = kind_of(self.root or Root.URLSET, head.get("capability"))
        self.document = Document(kind=self._kind, links=tuple(self._root_links), absent=tuple(self._absent), **head)
        return self.document

    def _plain(self, attributes: Attributes, fields: dict[str, Any]) -> dict[str, str]:
        """The attributes of an `rs:md` by their plain names; those of other namespaces go to `extra`."""
        plain = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if not plain.keys() <= _MD_NAMES:
            plain = self._sort_out(plain, _MD_NAMES, fields)
        if "modified" in plain:
            self._warnings.warn("AMB-38", "modified on rs:md was ignored")
        return plain

    def _sort_out(self, found: dict[str, str], known: Set[str], fields: dict[str, Any]) -> dict[str, str]:
        plain = {name: value for name, value in found.items() if name in known}
        extra, warn = [], self._warnings.warn
        for name, value in found.items():
            space, _, local = self._usual(name).rpartition(" ")
            if space == RS and local in known:
                warn("RS-DOC-12", "an attribute with the rs prefix was read as if it had none", local)
                plain.setdefault(local, value)
            elif space and space != RS:
                extra.append((f"{{{space}}}{local}", value))
            elif name == _IS_DATASET:  # of the Timbuctoo exporter (TIM-A5)
                extra.append((f"{{{HEADWATER}}}{name}", value))
                warn("RS-DOC-13", "isDataset was read as if it had a namespace of its own")
            elif name not in known:
                warn("RS-DOC-13", "an unknown attribute without a namespace of its own was ignored", local)
        if extra:
            fields["extra"] = tuple(extra)
        return plain

    def _read(self, table: dict[str, _Parse], found: dict[str, str], fields: dict[str, Any]) -> None:
        for name, text in found.items():
            if (parse := table.get(name)) is not None:
                fields["from_" if name == "from" else name] = parse(text, self._warnings)

    def _links_of(self, attributes: Attributes, had: int) -> list[Link]:
        """The links of one `rs:ln`: one for each relation it names (AMB-42)."""
        found = dict(zip(attributes[::2], attributes[1::2], strict=True))
        fields: dict[str, Any] = {}
        if not found.keys() <= _LN_NAMES:
            found = self._sort_out(found, _LN_NAMES, fields)
        href = found.get("href", "").strip(_SPACE)
        relations = found.get("rel", "").split()
        if not href or not relations:
            self._warnings.warn("RS-DOC-06", "an rs:ln without rel or href was ignored", href or " ".join(relations))
            return []
        if had + len(relations) > self.limits.links:
            raise LimitExceeded(f"more than {self.limits.links:,} links in one place")
        if len(relations) > 1:
            self._warnings.warn("AMB-42", "several relations in one rel were read as several links", found["rel"])
        fields["href"] = self._uri(href)
        self._read(_LINK, found, fields)
        # registered names are written in lower case; a URI is one as it is written (AMB-42)
        lower = [one if ":" in one else one.lower() for one in relations]
        for relation in (one for one, plain in zip(relations, lower, strict=True) if one != plain):
            self._warnings.warn("AMB-42", "a registered relation in capitals", relation)
        return [Link(rel=relation, **fields) for relation in lower]

    def _uri(self, text: str) -> str:
        if values.usual_uri(text):
            return text
        values.check_characters(text, self._warnings)
        if is_absolute(text):
            return text
        if self._base is None:
            self._warnings.warn("AMB-07", "a relative URI, with nothing to resolve it against", text)
            return text
        self._warnings.warn("AMB-07", "a relative URI was resolved against the document's own", text)
        return resolve(self._base, text)
