"""bad_packages.md lists every bad package with what is said of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.packages.faults import BadPackage
from headwater.packages.package import read_package
from tests.packages.bad_packages import BAD

PAGE = Path(__file__).with_name("bad_packages.md")


def said(read: Callable[[], str]) -> str:
    try:
        return read()
    except BadPackage as fault:
        return fault.code


def by_file(path: Path) -> str:
    """As `headwater inspect` reads it."""
    with path.open("rb") as file:
        package = read_package(file)
        for packaged in package.entries():
            package.verify(packaged)
        for member in package.undeclared():
            package.directory.check(member)
    problems = {one.rule for one in package.problems if one.fails} or {one.rule for one in package.problems}
    return ", ".join(sorted(problems)) or "read"


@pytest.mark.parametrize("name", BAD)
def test_the_page_says_what_a_bad_package_gets(name: str, tmp_path: Path) -> None:
    octets = BAD[name].make()
    (tmp_path / "package.zip").write_bytes(octets)
    row = f"| {name} | {said(lambda: by_file(tmp_path / 'package.zip'))} |"
    assert row in PAGE.read_text("utf-8")


def test_the_page_lists_nothing_else() -> None:
    table = PAGE.read_text("utf-8").partition("| package | what it gets")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| \S", table, re.MULTILINE)
    assert rows == list(BAD)
