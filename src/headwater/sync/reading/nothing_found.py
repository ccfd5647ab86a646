"""Why no ResourceSync document was found, as one fault: the cause that a person can do something about, each once."""

from __future__ import annotations

from headwater.errors import SourceFault
from headwater.sync.faults import NothingToCopy, NotResourceSync, PlainSitemap, SignInRefused
from headwater.sync.reading.looking import Look


def nothing_found(url: str, faults: list[SourceFault], plain: str | None, description: Look | None) -> SourceFault:
    """What all ways from `url` have come to; `plain` is a Sitemap, and `description` the description, that was seen."""
    if plain is not None:
        return PlainSitemap("only a plain Sitemap was found, no ResourceSync", where=plain, rule="DST-A3")
    if description is not None and not description.entries:
        return NothingToCopy("the Source Description lists no set", where=description.uri)
    telling = [fault for fault in faults if type(fault) is not SourceFault]
    documents = [fault for fault in telling if fault.code.startswith("HW-DOC") and fault.code != "HW-DOC-07"]
    for kind in (NothingToCopy, SignInRefused):
        if found := next((fault for fault in telling if isinstance(fault, kind)), None):
            return found
    answered = len(telling) < len(faults) or documents
    if telling and not answered:
        return telling[0]
    reasons, where = _reasons(faults)
    return NotResourceSync(f"no ResourceSync document was found: {reasons}", where=where or url, rule="DST-A2")


def _reasons(faults: list[SourceFault]) -> tuple[str, str]:
    """Each cause once, with its addresses where there is more than one; else the addresses by themselves."""
    causes: dict[str, list[str]] = {}
    for fault in faults:
        causes.setdefault(fault.what, []).append(fault.where or "")
    if len(causes) == 1:
        ((what, addresses),) = causes.items()
        return what[:1000], ", ".join(dict.fromkeys(filter(None, addresses)))[:1000]
    told = (f"{what} ({', '.join(dict.fromkeys(filter(None, found)))})" for what, found in causes.items())
    return "; ".join(told)[:1000] or "nothing there", ""
