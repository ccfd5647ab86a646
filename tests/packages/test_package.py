"""A package read from a file: manifest and members joined, by themselves and by `headwater inspect`."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.packages.faults import BadManifest, BadPackage
from headwater.packages.package import PackageFile, read_package
from headwater.packages.zip_reader import ZipDirectory, ZipMember
from headwater.spec.kinds import Kind
from tests.cli.test_inspect import inspect
from tests.packages.bad_packages import BAD, GOOD, GOOD_ENTRIES, Raw, entry, good, good_members, manifest, raw

RULES = {
    "member missing": "DST-P4",
    "undeclared": "RS-RDM-07",
    "length": "DST-P5",
    "hash": "DST-P5",
    "path": None,
}


REFUSED = ("missing", "kind", "xml")


def read(package: bytes, kind: Kind | None = None) -> tuple[PackageFile, dict[str, str | None]]:
    """The package, and its entries with the names of their members."""
    opened = read_package(io.BytesIO(package), kind=kind)
    found = {}
    for packaged in opened.entries():
        found[packaged.entry.loc] = packaged.member.name if packaged.member else None
        opened.verify(packaged)
    opened.undeclared()
    return opened, found


def test_a_good_package() -> None:
    package, found = read(good(), Kind.RESOURCE_DUMP_MANIFEST)
    assert found == {one.uri: f"resources/{name}" for one, name in zip(GOOD_ENTRIES, GOOD, strict=True)}
    assert package.problems == []
    assert package.document is not None
    assert package.document.kind == Kind.RESOURCE_DUMP_MANIFEST


@pytest.mark.parametrize(
    "name", [name for name, bad in BAD.items() if bad.manifest_fault in ("missing", "kind", "xml")]
)
def test_a_package_with_such_a_manifest_is_refused(name: str) -> None:
    """RS-RDM-01, RS-CDM-01, DST-P7, AMB-10."""
    with pytest.raises(BadManifest):
        read(BAD[name].make(), Kind.RESOURCE_DUMP_MANIFEST)


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.manifest_fault in RULES])
def test_what_does_not_fit_is_told(name: str) -> None:
    """DST-P3, DST-P4, DST-P5, RS-RDM-05, RS-RDM-07; the other entries are not hurt."""
    package, found = read(BAD[name].make())
    told = BAD[name].manifest_fault
    assert told is not None
    (problem,) = (problem for problem in package.problems if problem.rule != "RS-RDM-07" or told == "undeclared")
    assert problem.fails is (told != "undeclared")
    assert problem.rule == (RULES[told] or ("DST-P3" if "climbs" in name else "RS-RDM-05"))
    assert found[GOOD_ENTRIES[1].uri] == "resources/b.txt"


def test_a_manifest_of_the_wrong_kind() -> None:
    """DST-P7: what is no manifest, and that of a Change Dump where a Resource Dump was expected."""
    with pytest.raises(BadManifest) as caught:
        read(BAD["a manifest that is a Resource List"].make())
    assert caught.value.rule == "DST-P7"
    changes = BAD["a manifest of a Change Dump"].make()
    assert read(changes)[0].kind == Kind.CHANGE_DUMP_MANIFEST
    with pytest.raises(BadManifest):
        read(changes, Kind.RESOURCE_DUMP_MANIFEST)


@pytest.mark.parametrize(
    ("path", "member"),
    [("resources/a b.txt", "resources/a b.txt"), ("/resources/a%20b.txt", "resources/a b.txt")],
    ids=["without leading slash", "percent-encoded"],
)
def test_paths_as_other_programs_write_them(path: str, member: str) -> None:
    """AMB-36: read with a warning."""
    one = entry("a b.txt", b"content", path)
    package, found = read(raw([Raw(b"manifest.xml", manifest([one])), Raw(member.encode(), b"content")]))
    assert found == {one.uri: member}
    assert [(problem.rule, problem.fails) for problem in package.problems] == [("AMB-36", False)]


def test_a_deletion_has_no_path() -> None:
    text = manifest([], capability="changedump-manifest").replace(b"at=", b"from=")
    deletion = b'<url><loc>http://example.com/gone</loc><rs:md change="deleted" datetime="2026-01-02T00:00:00Z"/></url>'
    package, found = read(raw([Raw(b"manifest.xml", text.replace(b"</urlset>", deletion + b"</urlset>"))]))
    assert found == {"http://example.com/gone": None}
    assert package.problems == []


def test_a_patch_is_declared_by_its_link() -> None:
    """RS-CDM-11."""
    text = manifest([], capability="changedump-manifest").replace(b"at=", b"from=")
    link = (
        b'<rs:ln rel="http://www.openarchives.org/rs/terms/patch" href="http://example.com/p" path="/changes/1.patch"/>'
    )
    change = b'<url><loc>http://example.com/a</loc><rs:md change="updated" path="/changes/1"/>' + link + b"</url>"
    members = [Raw(b"manifest.xml", text.replace(b"</urlset>", change + b"</urlset>"))]
    package, _ = read(raw([*members, Raw(b"changes/1", b"1"), Raw(b"changes/1.patch", b"p")]))
    assert package.problems == []


def test_no_entry_may_name_the_manifest_as_its_content() -> None:
    package, found = read(raw([Raw(b"manifest.xml", manifest([entry("a.txt", b"", "/manifest.xml")]))]))
    assert list(found.values()) == [None]
    assert package.problems[0].rule == "DST-P4"


def test_inspect_shows_manifest_and_members(tmp_path: Path) -> None:
    (tmp_path / "package.zip").write_bytes(good())
    status, out, err = inspect(tmp_path / "package.zip")
    assert (status, err) == (0, "")
    assert out.startswith("Resource Dump Manifest")
    assert "3 members" in out
    assert "resources/a.txt · 400 B, deflated to" in out


def test_inspect_writes_one_object(tmp_path: Path) -> None:
    (tmp_path / "package").write_bytes(BAD["a member of another hash"].make())
    status, out, _ = inspect(tmp_path / "package", "--json")
    assert status == 1
    shown = json.loads(out)
    assert shown["kind"] == "resource-dump-manifest"
    assert [entry["path"] for entry in shown["entries"]] == ["/resources/a.txt", "/resources/b.txt"]
    assert [member["name"] for member in shown["package"]["members"]] == [
        "manifest.xml",
        *(f"resources/{n}" for n in GOOD),
    ]
    assert [(problem["rule"], problem["fails"]) for problem in shown["package"]["problems"]] == [("DST-P5", True)]


def damaged_package(count: int) -> bytes:
    """A package of so many members, of which every second has a wrong CRC; one more is not named, and damaged too."""
    contents = {f"m{n:03}.txt": b"member %d" % n for n in range(count)}
    members = [
        Raw(f"resources/{name}".encode(), content, crc=n % 2 or None)
        for n, (name, content) in enumerate(contents.items())
    ]
    text = manifest([entry(name, content) for name, content in contents.items()])
    return raw([Raw(b"manifest.xml", text), *members, Raw(b"stray.txt", b"stray", crc=1)])


def test_inspect_tells_every_damaged_member(tmp_path: Path) -> None:
    """The first of them does not end the reading, and the exit status is what it was."""
    (tmp_path / "package.zip").write_bytes(damaged_package(8))
    status, out, err = inspect(tmp_path / "package.zip")
    assert status == 3
    assert "10 members" in out
    assert "http://example.com/m007.txt" in out
    damaged = [f"resources/m{n:03}.txt" for n in (1, 3, 5, 7)] + ["stray.txt"]
    told = [line for line in out.splitlines() if line.startswith("problem: [DST-P6]")]
    assert [name in line for name, line in zip(damaged, told, strict=True)] == [True] * 5
    assert "8 entries, " in out, "the manifest is whole"
    assert "5 members are damaged; of the first of them: 'resources/m001.txt' has another CRC" in err
    status, out, _ = inspect(tmp_path / "package.zip", "--json")
    shown = json.loads(out)
    assert (status, shown["complete"], shown["entry_count"]) == (3, False, 8)
    assert [one["subject"] for one in shown["package"]["problems"] if one["fails"]] == damaged


def test_inspect_tells_a_bounded_number_of_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.inspect._MOST_DAMAGED", 30)
    (tmp_path / "package.zip").write_bytes(damaged_package(80))
    _, out, err = inspect(tmp_path / "package.zip")
    assert out.count("problem: ") == 20
    assert (
        "… and 11 more problems and warnings; --all shows all" in out
    )  # 30 that are kept, and the stray one's warning
    assert "41 members are damaged" in err
    _, out, _ = inspect(tmp_path / "package.zip", "--all")
    assert (out.count("problem: "), out.count("warning: ")) == (30, 1)


def test_inspect_reads_a_package_from_standard_input() -> None:
    status, out, err = inspect("-", "--ndjson", octets=BAD["a member is missing"].make())
    assert status == 1
    assert len(out.splitlines()) == 3
    assert "problem: [DST-P4]" in err


def test_inspect_does_not_fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package from a server or a pipe is kept in a temporary file, and may never end."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(good()) + (256 << 20)))
    assert inspect("-", octets=good())[0] == 0
    status, _, err = inspect("-", octets=good() + bytes(1_000))
    assert status == 6
    assert "TMPDIR" in err


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.fault and "65,536" not in name])
def test_inspect_refuses_a_bad_package(name: str, tmp_path: Path) -> None:
    """Also where only an undeclared member is bad."""
    (tmp_path / "package.zip").write_bytes(BAD[name].make())
    status, out, err = inspect(tmp_path / "package.zip", "--json")
    assert status == 3, out
    assert "HW-PKG-" in err
    assert json.loads(out)["complete"] is False


def test_a_name_in_a_message_is_one_line(tmp_path: Path) -> None:
    octets = raw([*good_members(), Raw("resources/\u202etxt.exe".encode(), b"")])
    (tmp_path / "package.zip").write_bytes(octets)
    _, out, _ = inspect(tmp_path / "package.zip")
    assert "\u202e" not in out
    with pytest.raises(BadPackage) as caught:
        read(BAD["a name that has an escape"].make())
    assert "\x1b" not in caught.value.what


def test_many_entries_of_one_member_cost_one_reading_and_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """DST-F9: 3,000 entries name one member; of what is wrong so many are remembered, the others counted."""
    name, content = next(iter(GOOD.items()))
    wrong = entry(name, content)._replace(octets=1)
    read_members: list[str] = []
    blocks = ZipDirectory.blocks

    def counted(directory: ZipDirectory, member: ZipMember) -> Iterator[bytes]:
        read_members.append(member.name)
        return blocks(directory, member)

    monkeypatch.setattr(ZipDirectory, "blocks", counted)
    package, _ = read(raw(good_members(manifest([wrong] * 3_000))))
    assert read_members.count(f"resources/{name}") == 1
    assert (len([one for one in package.problems if one.fails]), package.untold) == (1_000, 2_000)
