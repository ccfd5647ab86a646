"""Folders of small files for the benchmarks of dumps: text that deflates as records do, or octets that do not."""

from __future__ import annotations

import random
from pathlib import Path

FILES, QUICK_FILES = 20_000, 1_000
OCTETS = 4096
A_FOLDER = 200
_SYLLABLES = ("ra", "ne", "sto", "vil", "qua", "men", "tor", "is", "ae", "dun", "keph", "lo", "mi", "sar", "ut", "wen")
_FIELDS = ("title", "creator", "subject", "abstract", "publisher", "identifier", "relation", "rights")
_WORDS = 4_000


def text_files(folder: Path, count: int, octets: int = OCTETS) -> Path:
    """So many JSON records of exactly so many octets each, `.json`: words of a vocabulary by Zipf's law.

    `zip -6` brings 4 KiB of it to 0.4, as it does with metadata records; each record is another.
    """
    chance = random.Random(1)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(_WORDS)]
    weights = [1 / rank for rank in range(1, _WORDS + 1)]
    pool = chance.choices(words, weights, k=1 << 18)
    for number in range(count):
        record = _record(chance, pool, number, octets)
        _place(folder, number, "json").write_bytes(record)
    return folder


def random_files(folder: Path, count: int, octets: int = OCTETS) -> Path:
    """So many files of random octets with the name of a compressed media type, `.jpg`."""
    chance = random.Random(2)
    for number in range(count):
        _place(folder, number, "jpg").write_bytes(chance.randbytes(octets))
    return folder


def _place(folder: Path, number: int, suffix: str) -> Path:
    within = folder / f"{number // A_FOLDER:04d}"
    if number % A_FOLDER == 0:
        within.mkdir(parents=True, exist_ok=True)
    return within / f"f{number:06d}.{suffix}"


def _record(chance: random.Random, pool: list[str], number: int, octets: int) -> bytes:
    lines, missing = [f'{{"id": "{number:09d}-{chance.getrandbits(64):016x}"'], octets
    while missing > 0:
        start, field = chance.randrange(len(pool) - 40), chance.choice(_FIELDS)
        lines.append(f'"{field}": "{" ".join(pool[start : start + chance.randint(4, 40)])} {chance.getrandbits(32)}"')
        missing = octets - sum(len(line) + 3 for line in lines)
    return ",\n ".join(lines).encode()[: octets - 3].ljust(octets - 3) + b'"}\n'
