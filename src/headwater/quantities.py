"""Quantities as people read and write them: octets, durations, and the share that may be deleted: the deletion guard.

They are the same in results, notices, errors and options. So is the text of strangers, which must not steer a reader's
terminal or turn a line around.
"""

import re
from contextlib import suppress

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` with control, direction and surrogate characters as visible escapes (`\\x1b`)."""
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def human_octets(octets: float) -> str:
    """`octets` in binary units with three figures: `999 B`, `4.10 KiB`, `12.3 MiB`."""
    size = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1000 or unit == "TiB":
            break
        size /= 1024
    if unit == "B":
        return f"{size:.0f} B"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {unit}"


def human_seconds(seconds: float) -> str:
    """`seconds` as a person says them: `0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


_QUANTITY = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)\s*\Z")
_OCTETS = {"": 1, "b": 1} | {
    unit: factor**power
    for power, letter in enumerate("kmgt", 1)
    for unit, factor in ((letter, 1000), (f"{letter}b", 1000), (f"{letter}i", 1024), (f"{letter}ib", 1024))
}
_SECONDS = {
    unit: seconds
    for units, seconds in (
        (("", "s", "sec", "secs", "second", "seconds"), 1),
        (("m", "min", "mins", "minute", "minutes"), 60),
        (("h", "hr", "hrs", "hour", "hours"), 3_600),
        (("d", "day", "days"), 86_400),
        (("w", "week", "weeks"), 604_800),
        (("y", "year", "years"), 31_557_600),
    )
    for unit in units
}


def octets_from(text: str) -> int | None:
    """So many octets as a person writes them: `20 GB`, `1.5 GiB`, `4096`; None when it is no such text."""
    found = _QUANTITY.match(text)
    factor = _OCTETS.get(found[2].lower()) if found else None
    return None if found is None or factor is None else round(float(found[1]) * factor)


def seconds_from(text: str) -> float | None:
    """So many seconds as a person writes them: `30 days`, `12 h`, `90 min`, `3600`; None when it is no such text."""
    found = _QUANTITY.match(text)
    factor = _SECONDS.get(found[2].lower()) if found else None
    return None if found is None or factor is None else float(found[1]) * factor


def share_from(text: str) -> float | None:
    """A share as a person writes it, `20%` or `0.2`, from 0 to 1; None when it is no such text."""
    with suppress(ValueError):
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        return share if 0 <= share <= 1 else None
    return None


_BINARY = {unit: 1024**power for power, unit in enumerate("bkmgt")}
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(?:([bkmgt])i?(?:b)?)?(?:/s|ps)?", re.IGNORECASE | re.ASCII)


def bandwidth_from(text: str) -> int | None:
    """Octets a second as a person writes them, `2M`, `500k`; a number alone is KiB; 0 is `off`; None: no such text."""
    if text.lower() in ("off", "0"):
        return 0
    found = _BANDWIDTH.fullmatch(text)
    rate = float(found[1]) * _BINARY[(found[2] or "k").lower()] if found else 0.0
    return int(rate) if 1 <= rate < 1 << 50 else None


def kept_from(text: str) -> bool | dict[str, str] | None:
    """How long something is kept, and how many octets of it, as a person writes it: `30 days`, `1 year, 20 GB`, `all`.

    As a table of texts with `keep` and `octets`, or True for all; None when it is no such text.
    """
    if text.strip() == "all":
        return True
    keep, _, octets = (part.strip() for part in text.partition(","))
    if not keep and not octets:
        return None
    if (keep and seconds_from(keep) is None) or (octets and octets_from(octets) is None):
        return None
    return {name: said for name, said in (("keep", keep), ("octets", octets)) if said}


# the deletion guard: how many of the resources held may be deleted at once without consent (DST-B4, DST-F9).
# An unmounted disk and a list that was cut look like a mass of deletions.

DEFAULT_SHARE = 0.2
FLOOR = 10
"""So many may be deleted without consent, unless they are all."""


def needs_consent(deleted: int, held: int, share: float = DEFAULT_SHARE, *, floor: int = FLOOR) -> bool:
    """Whether these deletions are to be held back: all of what is held, or more than `share` of it and than `floor`.

    With a `share` of 1 none are.
    """
    if deleted == 0 or share >= 1:
        return False
    return deleted >= held or deleted > max(floor, round(share * held, 6))  # 0.29 of 100 are 28.999999999999996


def consent_for(deleted: int, held: int) -> str:
    """The least share, as whole percents, that lets these deletions be made whatever their number is."""
    return f"{min(-(-deleted * 100 // max(held, 1)), 100)}%"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 file`, `1,200 files`, `2 patches`, `3 tries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
