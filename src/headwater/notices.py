"""What is said without failing: every notice with a code of our own, its meaning, and what to do about it.

Most are a source's. Others of destinations and documents carry the rule of the standard (RS-…, AMB-…, DST-…) that
explains them.
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
    "The catalog was written by an older version and has been migrated to this version's schema.",
    "Nothing; to go back to the older version, restore a copy of the file, or a dump, that the older version made.",
)
LINK_OUT = _known(
    "HW-ING-11",
    "A symbolic link that leads out of the published folder is not followed.",
    "Put the file itself, or a hard link, into the folder if it is to be published.",
)
LINK_LOOP = _known(
    "HW-ING-12",
    "A symbolic link that leads to itself, or to a folder above it, is not followed.",
    "Nothing, or remove the link.",
)
NOT_A_FILE = _known("HW-ING-13", "A pipe, socket or device is left out.", "Nothing, or exclude it by a pattern.")
URI_TOO_LONG = _known(
    "HW-ING-14",
    "A file is left out, because its URI would be longer than servers and clients accept.",
    "Shorten the names of the folders above it; octets outside ASCII count threefold.",
)
STATE_FOLDER = _known(
    "HW-ING-15",
    "What holds the state of a Headwater command or has its name, and the output of `publish`, is left out.",
    "Nothing; but keep state and output outside the published folders.",
)
OWN_COPY = _known(
    "HW-ING-16",
    "A folder that is a copy of this source is left out: published, it would be copied into itself again and again.",
    "Move the copy out of the published folder.",
)
OWN_FILE = _known(
    "HW-ING-17",
    "A file that the source needs itself is left out: its configuration, a file of tokens or keys, its catalog.",
    "Nothing; but keep these files outside the published folders.",
)
HIDDEN = _known(
    "HW-ING-18",
    "Files and folders with names that begin with a dot, such as .git and .env, are left out.",
    "Nothing; or, if they are to be published, set `hidden = true` (`--hidden`).",
)
UNREADABLE = _known(
    "HW-ING-20",
    "A file or folder cannot be read; its published state stays as it is.",
    "Give this user permission to read it, or exclude it by a pattern.",
)
HELD_BACK = _known(
    "HW-ING-21",
    "Deletions are held back: everything has vanished, or more files within an hour than `max_delete` allows.",
    "Check that the folder is mounted and right; if so, consent for one time with `headwater allow-deletions`.",
)
BEING_WRITTEN = _known(
    "HW-ING-22",
    "A file is being written, or changed while it was read; it is read again.",
    "Nothing; if this repeats, write files under a temporary name and rename them, or raise `settle_seconds`.",
)
VERSION_NOT_KEPT = _known(
    "HW-ING-23",
    "The octets of a changed file cannot be kept: the change is published, its Change Dump perhaps not.",
    "Make room where the state folder lies (64 MiB of it are left free), or turn change_dump or versions off.",
)
NOT_CANONICAL = _known(
    "HW-ING-24",
    "An RDF document is stated by its digests alone: it cannot be parsed, takes too much, or says nothing.",
    "Correct the document, or leave it: whoever copies it verifies its octets.",
)
CHANGE_DUMP_ANEW = _known(
    "HW-PUB-13",
    "The octets of a change cannot be had, so no package may cover its time: Change Dumps begin anew after it.",
    "Find out why they were not kept (HW-ING-23), or where the resource's server is; Change Lists are whole.",
)
DUMP_HELD_BACK = _known(
    "HW-PUB-14",
    "So many resources cannot be read, or are not as recorded, that packages without them are not named.",
    "Check that the folder is mounted and right; deletions that are held back need consent (HW-ING-21).",
)
PATCH_NOT_MADE = _known(
    "HW-PUB-15",
    "A patch could not be made or stored: the change is published without it.",
    "Check the cause that the line names: the disk, permissions of the state folder.",
)
HISTORY_RESET = _known(
    "HW-PUB-17",
    "Change Lists of a set begin anew: the catalog was lost or restored, or the base URL is another one.",
    "Nothing if that was meant: copies compare with the Resource List. Else stop, and check `state` and `base_url`.",
)
VERSIONS_NOT_REMOVED = _known(
    "HW-VER-11",
    "Versions that nothing needs could not be removed; it is tried again after an hour.",
    "Check the cause that the line names: permissions of the state folder, the disk.",
)
LEFT_OUT = _known(
    "HW-ING-50",
    "A field of a DIT-ES document cannot be read or published and was left out of the resource.",
    "Fix the program that writes the documents; the notice names the field.",
)
MERGED = _known(
    "HW-ING-51",
    "Documents of different locations resolve to one URI: they were taken as one resource (DIT-A9).",
    "Let the harvester announce each resource by one location.",
)
OTHER_KIND = _known(
    "HW-ING-60",
    "Nothing of a file was taken; its beginning looks like a file for another command.",
    "Run the command that the note names.",
)
NONE_FOR_THE_SET = _known(
    "HW-ING-61",
    "Every document of a file belongs to another set; none was taken.",
    "Name the set as the documents do, with --resource-set; * accepts them all.",
)
NO_TOKEN = _known(
    "HW-CFG-11",
    "Push sets have neither a token nor an index: all announcements to them by HTTP are refused.",
    "Give each a token, token_file or token_env; without a server, `headwater ingest` announces from files.",
)
OTHER_BASE = _known(
    "HW-PUB-11",
    "A set of the output that this run does not publish was published for another base URL; it is no longer named.",
    "Publish it again with --set and the new --base-url.",
)
LEFT_RESOURCES = _known(
    "HW-PUB-12",
    "The output has resources that an earlier run placed; with --resources none they are no longer updated.",
    "Remove that folder if nothing else needs it, or publish with --resources link again.",
)
CLASSIC_INDEX = _known(
    "HW-PUB-16",
    "The Resource List for old harvesters does not fit into one document: it is an index, which some cannot read.",
    "Divide the set into several of at most 50,000 resources if its readers know no index.",
)
TURN_LOST = _known(
    "HW-OWN-11",
    "Another process has taken over the publishing of the source; this one is the standby.",
    "Nothing if this was intended; else find out why this process was silent: paused, or cut off from the catalog.",
)
REQUEST_FAULT = _known(
    "HW-SRV-02",
    "The server's own files could not be read while a request was answered.",
    "Check the cause that the line names: the disk, permissions, the limit of open files.",
)
WORKER_ENDED = _known(
    "HW-SRV-03",
    "One of several serving processes ended unexpectedly; another one starts.",
    "Find the cause in the log before this line; lack of memory is a frequent one.",
)
HANGUP = _known(
    "HW-SRV-15",
    "SIGHUP has come, and ends nothing: the log is standard error, and nothing else can be opened anew.",
    "Restart the command to have its configuration read again.",
)
LONG_URI = _known(
    "RS-DOC-19",
    "A URI is longer than the 2,047 characters of a Sitemap; it is published nevertheless.",
    "Shorten the names of the folders above it if clients refuse it.",
)
FOREIGN_ROBOTS = _known(
    "RS-DISC-05",
    "The robots.txt in the output is not written by Headwater and stays as it is.",
    "Add the Sitemap lines that the notice names.",
)
COPY_LOOP = _known(
    "HW-CPY-11",
    "Resources of a copy came from this very source, by their `via` or by where they were fetched: a circle.",
    "Have one of the sources in the circle copy from the origin; what came from ourselves is left out meanwhile.",
)
COPY_CHANGED = _known(
    "HW-CPY-12",
    "Files of a copy are missing, or are not those that were placed; they are not announced or served as if they were.",
    "`headwater audit URL DEST` shows them, `headwater sync --repair` fetches them again.",
)
COPY_UNCONFIRMED = _known(
    "HW-CPY-13",
    "No list of the origin confirms the present octets of some files of a copy; what was published of them stays.",
    "Nothing: the next run of `headwater sync` settles it; `headwater status DEST` tells more.",
)
COPY_UNUSABLE = _known(
    "HW-CPY-14",
    "Files of a copy are left out, because no resource can have their names, or no document what is stated of them.",
    "Nothing, or tell the origin; the notice names an example.",
)
COPY_INCOMPLETE = _known(
    "HW-CPY-15",
    "The copy was made anew and its baseline has not ended: what it does not hold yet stays published.",
    "Nothing: deletions follow when `headwater sync` has completed the baseline.",
)
COPY_NEW_SET = _known(
    "HW-CPY-16",
    "The copy has got a set that this source does not publish, because it was not there when the source was started.",
    "Nothing with `headwater serve --copy DEST`, which takes it in. Else add a [[set]] with copy_set, and restart.",
)
DATASET_CHANGED = _known(
    "HW-DAT-11",
    "An RDF dataset has changed: so many statements were added and removed.",
    "Nothing.",
)
DATASET_CHANGING = _known(
    "HW-DAT-12",
    "An RDF dataset changed while it was read; it is read again.",
    "Nothing; if this repeats, write files under a temporary name and rename them.",
)
DATASET_ANEW = _known(
    "HW-DAT-13",
    "The patches of an RDF dataset begin anew from nothing, because its Change Lists do, or because it was asked for.",
    "Nothing: destinations find a gap, and load the dataset as it is.",
)
PUSH_MODE = _known(
    "HW-PSH-01",
    "A copy that is followed by push has begun to get notifications, or gets none any more and is polled.",
    "Nothing; where it does not come to work, the other notices say why, and `headwater status DEST` shows it.",
)
PUSH_FAULT = _known(
    "HW-PSH-02",
    "A hub cannot be asked or refuses, or something was delivered that was not taken; polls go on.",
    "Nothing, if it passes; else ask the operator of the hub, and check that the callback URL reaches the listener.",
)
