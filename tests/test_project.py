"""What holds of the whole project: pins without addresses, one version, one name for one thing."""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable
from operator import gt
from pathlib import Path

import pytest
from tools.journeys import journeys

import headwater

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headwater"
MODULES = sorted(SOURCE.rglob("*.py"))

FAMILIES = {f"DST-{letter}" for letter in "ABCDFPQSV"}
"""Families of a destination's rules; a text may cite one as a whole."""

OTHERS_NUMBERS = "AMB|DIT|DST|NQUD|TIM|UTF|SHA|CRC|FNV|ISO|BSD|SSH|PDF|AGG|CVE|PEP|MD"
"""Whose numbers may follow a hyphen in a comment: our families of rules, and names that everybody knows."""

UNRESOLVED: set[str] = set()
"""Pages that are named and not there: to be replaced by a figure or the right number; nothing is added here."""

LINES = {
    "aggregator": 5_875,
    "catalog": 4_310,
    "cli": 7_135,
    "datasets": 385,
    "files": 1_351,
    "http": 5_292,
    "ingest": 8_948,
    "notify": 3_550,
    "packages": 1_171,
    "patches": 434,
    "processes": 307,
    "publish": 6_430,
    "rdf": 2_140,
    "simulate": 808,
    "source": 5_566,
    "spec": 3_634,
    "storage": 1_934,
    "sync": 16_342,
    "top": 1_589,
    "transport": 2_086,
    "triplestores": 838,
    "versions": 1_168,
}
"""How many lines a room may have (`top`: the modules that stand in none). A number may only be lowered."""

MOST_MODULES = 337
"""How many modules there may be. It may only be lowered."""

JOURNEYS = {
    "One changed file, published again": (65, 525),
    "One record announced, until it is published": (63, 440),
    "The first sync of one resource": (65, 550),
    "The next sync, of one change": (63, 500),
}
"""How many modules and functions each may pass (`tools.journeys`). A number may only be lowered."""

NAMELESS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git work tree")
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_nothing_names_a_registry_or_a_machine() -> None:
    hosts = ["pypi" + ".org", "python" + "hosted", "files.python" + "hosted", "registry." + "npmjs", "/sim" + "ple/"]
    pattern = re.compile("|".join(map(re.escape, hosts)) + r"|https?://[^ \"]*/(packages|maven2|debian)/")
    found = []
    for path in tracked():
        if path.suffix in {".py", ".toml", ".txt", ".in", ".md", ".sh", ".cfg", ""} or path.name == "Makefile":
            text = path.read_text("utf-8", "replace")
            found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert [hit for hit in found if not hit.startswith("tests/test_project.py")] == []


def test_no_lock_file_with_addresses_is_tracked() -> None:
    assert not {path.name for path in tracked()} & {"uv.lock", "poetry.lock", "Pipfile.lock"}


@pytest.mark.parametrize("name", ["build", "runtime", "test", "lint", "docs"])
def test_requirements_are_pinned_and_hashed(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    for entry in entries:
        first, *rest = entry.split("\n")
        assert re.match(r"[A-Za-z0-9._-]+==\S+", first), first
        assert rest, f"{first} has no hash"
        assert all(re.match(r"    --hash=sha256:[0-9a-f]{64}", line) for line in rest), first


def test_every_dependency_is_pinned_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "runtime.txt").read_text(), re.MULTILINE))
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    for requirement in project["dependencies"]:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert name is not None
        assert name[0] in pinned
        assert f"| {name[0]} |" in explained, f"{name[0]} is not in docs/dependencies.md"


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {headwater.__version__}" in changes


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_opens_with_its_reason(path: Path) -> None:
    text = path.read_text("utf-8")
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert path.stem not in NAMELESS
    assert path.parent.name not in NAMELESS


def lines_of(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "top"


@pytest.mark.parametrize("room", sorted({room_of(path) for path in MODULES} | LINES.keys()))
def test_a_room_has_no_more_lines_than_its_budget(room: str) -> None:
    """Whoever makes a room smaller lowers its budget in the same commit, so that it stays so."""
    lines = lines_of(path for path in MODULES if room_of(path) == room)
    assert lines <= LINES[room], "say it with fewer lines: a budget is never raised"
    assert lines > LINES[room] - 50, f"lower the budget of {room} to {lines}"


def test_there_are_no_more_modules_than_the_budget() -> None:
    assert len(MODULES) <= MOST_MODULES, "merge a module into its neighbour: the number is never raised"
    assert len(MODULES) > MOST_MODULES - 10, f"lower the budget to {len(MODULES)}"


def test_the_smallest_work_passes_no_more_modules_than_it_may() -> None:
    """What a change of one file, one record and one resource passes on its way; rarities do not lie on it."""
    for _ in range(3):  # a tick of a thread that falls into a journey adds to it
        found = {name: (len({module for module, _ in calls}), len(calls)) for name, calls in journeys().items()}
        assert found.keys() == JOURNEYS.keys()
        over = {name: counts for name, counts in found.items() if any(map(gt, counts, JOURNEYS[name]))}
        if not over:
            break
    assert over == {}, "counted modules and functions"


def test_no_two_public_classes_have_one_name() -> None:
    """Over the whole tree, so that a name in a message, a test or a search leads to one thing."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_every_fast_path_has_its_flag_and_its_row() -> None:
    """Decision 026: what it gives is measured, and it can be done without."""
    decision = (ROOT / "docs" / "decisions" / "026-fast-paths.md").read_text("utf-8")
    fast = [path for path in MODULES if path.stem.startswith("fast_")]
    assert fast
    for path in fast:
        assert "\nIS_ON = True\n" in path.read_text("utf-8").replace("IS_ON: bool", "IS_ON"), path
        assert f"| `{path.relative_to(SOURCE)}` | `tests/" in decision, path


def test_every_page_that_the_code_names_exists() -> None:
    missing = []
    for path in MODULES:
        named = re.findall(r"(?<![\w*.])[\w./-]*\w\.md\b", path.read_text("utf-8"))
        missing += [f"{path.relative_to(SOURCE)}: {name}" for name in named if not (ROOT / name).is_file()]
    assert set(missing) <= UNRESOLVED


def test_every_rule_that_is_cited_is_explained() -> None:
    explained = set(
        re.findall(r"\b(?:RS-[A-Z]+|DST-\d\.\d|(?:AMB|DST)-\w+)", (ROOT / "tests" / "rules.md").read_text("utf-8"))
    )
    unexplained = []
    for path in tracked():
        if path.suffix in {".py", ".md", ".toml"}:
            text = path.read_text("utf-8", "replace")
            cited = set(re.findall(r"\bRS-[A-Z]{2,}(?=-\d)|(?<![\w-])(?:AMB-\d+|DST-[A-Z]\d*|DST-\d\.\d)", text))
            for first, last in re.findall(r"\bAMB-(\d+)…(\d+)", text):
                cited |= {f"AMB-{number:02d}" for number in range(int(first), int(last) + 1)}
            unexplained += [f"{path.relative_to(ROOT)}: {rule}" for rule in sorted(cited - explained - FAMILIES)]
    assert unexplained == []


def comments(path: Path) -> list[str]:
    """The comments and docstrings of a module: where it cites what stands elsewhere."""
    text = path.read_text("utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        token.string
        for token in tokens
        if token.type == tokenize.COMMENT
        or (token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')))
    ]


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("No event, because nothing was there (5.3).", ["5.3"]),
        ("The last change of each (AMB-18, 5.2).", ["5.2"]),
        ("One of the peers' own cases (OMT-3).", ["OMT-3"]),
        ("The target of a reference (RFC 3986, 5.2.4), in UTF-8, by SHA-256.", []),
        ("A share of the time (DST-5.3, HW-SYN-14).", []),
    ],
)
def test_a_reference_without_a_document_is_seen(text: str, cited: list[str]) -> None:
    assert unresolved(text) == cited


def unresolved(text: str) -> list[str]:
    """What a text refers to that no page of this project, and no document it names, could explain."""
    numbers = [
        number
        for inside in re.findall(r"\(([^()]*)\)", text)
        if "RFC" not in inside
        for number in re.findall(r"(?:^|, )(\d\.\d)(?=$|[,;:])", inside)
    ]
    return numbers + re.findall(rf"(?<![\w-])(?!(?:{OTHERS_NUMBERS})-)[A-Z]{{2,4}}-\d+\b(?!\.\d)", text)


def test_every_reference_resolves_in_the_docs() -> None:
    """A bare number of a section, or an id of a list that is not here, sends a reader nowhere."""
    paths = [path for path in tracked() if path.suffix == ".py" and path != Path(__file__)]
    found = [
        f"{path.relative_to(ROOT)}: {one}" for path in paths for text in comments(path) for one in unresolved(text)
    ]
    assert found == []


def test_the_rooms_import_downwards_only() -> None:
    pytest.importorskip("importlinter", reason="the lint set is not installed; `make lint` runs the contract too")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_what_decodes_a_type_is_made_in_one_place() -> None:
    """`typed_decoding` says why: several threads may be the first to need a type."""
    elsewhere = re.compile(r"msgspec(?:\.\w+)?\.(?:Decoder|convert)\b|msgspec\.\w+\.decode\([^\n]*\btype=")
    found = [path.relative_to(SOURCE) for path in MODULES if elsewhere.search(path.read_text("utf-8"))]
    assert found == [Path("typed_decoding.py")]


def test_a_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:3] for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")]
    assert sorted(numbers) == sorted(set(numbers))
    page = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"):
        assert page.count(f"- [{path.name[:3]}]({path.name}) ") == 1, f"{path.name} has no line under its subject"
    unused = set(re.findall(r"\d{3}", page.partition("Numbers never used:")[2].partition("\n")[0]))
    replaced = set(re.findall(r"^- (\d{3}): ", page, re.MULTILINE))
    missing = {f"{number:03d}" for number in range(1, int(max(numbers)) + 1)} - set(numbers)
    assert missing == unused | replaced, "a number without a decision, of which README.md does not say so"
