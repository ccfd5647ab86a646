"""What a source says without failing: every notice with a code of our own, its meaning, and what to do about it.

Notices of destinations and documents carry the rule of the standard (RS-…, AMB-…, DST-…) that explains them.
"""

from __future__ import annotations

from typing import NamedTuple


class KnownNotice(NamedTuple):
    """One notice as the reference shows it."""

    code: str
    meaning: str
    advice: str


NOTICES: dict[str, KnownNotice] = {}
"""Every notice, by its code."""


def _known(code: str, meaning: str, advice: str) -> str:
    NOTICES[code] = KnownNotice(code, meaning, advice)
    return code


MIGRATED = _known(
    "HW-CAT-11",
    "The catalog was written by an older version and has been brought to this version's schema.",
    "Nothing; to go back to the older version, restore a copy of the file, or a dump, that it made itself.",
)
LINK_OUT = _known(
    "HW-ING-11",
    "A symbolic link that leads out of the published folder is not followed.",
    "Put the file itself, or a hard link, into the folder if it is to be published.",
)
LINK_LOOP = _known(
    "HW-ING-12",
    "A symbolic link that leads to itself, or back into the folders above it, is not followed.",
    "Nothing, or remove the link.",
)
NOT_A_FILE = _known("HW-ING-13", "A pipe, socket or device is left out.", "Nothing, or exclude it by a pattern.")
URI_TOO_LONG = _known(
    "HW-ING-14",
    "A file is left out, because its URI would be longer than servers and clients take.",
    "Shorten the names of the folders above it; octets outside ASCII count threefold.",
)
STATE_FOLDER = _known(
    "HW-ING-15",
    "A folder that holds the state of a Headwater command (named .headwater, or marked as one) is left out.",
    "Nothing; better keep state and output outside the folders that are published.",
)
UNREADABLE = _known(
    "HW-ING-20",
    "A file or folder cannot be read; what is published of it stays as it is.",
    "Give this user permission to read it, or exclude it by a pattern.",
)
HELD_BACK = _known(
    "HW-ING-21",
    "Deletions are held back: everything has vanished, or more than --max-delete allows.",
    "Look whether the folder is mounted and right; if so, consent with --max-delete 1 (max_delete in the file).",
)
BEING_WRITTEN = _known(
    "HW-ING-22",
    "A file changed while it was read; it is tried again.",
    "Nothing; if it comes again and again, write files aside and rename them.",
)
LEFT_OUT = _known(
    "HW-ING-50",
    "A field of a DIT-ES document cannot be read or published and was left out of the resource.",
    "Mend what writes the documents; the notice names the field.",
)
MERGED = _known(
    "HW-ING-51",
    "Documents of different locations resolve to one URI: they were taken as one resource (DIT-A9).",
    "Let the harvester announce each resource by one location.",
)
OTHER_KIND = _known(
    "HW-ING-60",
    "Nothing of a file was taken, and it begins like one for another command.",
    "Run the command that the note names.",
)
NONE_FOR_THE_SET = _known(
    "HW-ING-61",
    "Every document of a file is of another set; none was taken.",
    "Name the set as the documents do, with --resource-set; * takes them all.",
)
NO_TOKEN = _known(
    "HW-CFG-11",
    "Fed sets have neither a token nor an index: whatever is announced to them by HTTP is refused.",
    "Give each a token, token_file or token_env; without a server, `headwater ingest` announces from files.",
)
OTHER_BASE = _known(
    "HW-PUB-11",
    "A set of the output that this run does not publish was published for another base URL; it is no longer named.",
    "Publish it again with --set and the new --base-url.",
)
LEFT_RESOURCES = _known(
    "HW-PUB-12",
    "The output holds resources that an earlier run placed; with --resources none they are no longer kept current.",
    "Remove that folder if nothing else needs it, or publish with --resources link again.",
)
OLD_SETTING = _known(
    "HW-SIM-11",
    "Settings of the older simulator that mean nothing here are left out.",
    "Nothing; docs/simulate.md lists the keys that are understood.",
)
TURN_LOST = _known(
    "HW-OWN-11",
    "Another process has taken over the publishing of the source; this one stands by.",
    "Nothing when that was meant; else look why this process was silent: paused, cut off from the catalog.",
)
REQUEST_FAULT = _known(
    "HW-SRV-02",
    "The server's own files could not be read while a request was answered.",
    "Look at the cause that the line names: the disk, permissions, the limit of open files.",
)
WORKER_ENDED = _known(
    "HW-SRV-03",
    "One of several serving processes ended unasked; another one starts.",
    "Look for the cause in the log before this line; memory is a frequent one.",
)
LONG_URI = _known(
    "RS-DOC-19",
    "A URI is longer than the 2,047 characters of a Sitemap; it is published all the same.",
    "Shorten the names of the folders above it if clients refuse it.",
)
FOREIGN_ROBOTS = _known(
    "RS-DISC-05",
    "The robots.txt in the output is not written by Headwater and stays as it is.",
    "Add the Sitemap lines that the notice names.",
)
