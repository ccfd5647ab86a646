"""The reader of packages: what is good comes whole, what is bad is refused."""

import io
import os
import random
import struct
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.packages.faults import BadPackage, BadPath, PackageLimits, PackageTooLarge
from headwater.packages.member_paths import MemberNames
from headwater.packages.zip_reader import read_directory
from headwater.packages.zip_writer import ZipWriter
from tests.packages.bad_packages import BAD, GOOD, good, manifest, raw, stored_without_length
from tests.packages.test_zip_writer import CONTENT, several
from tests.support.examples import examples

pytestmark = pytest.mark.long(50)

LIMITS = PackageLimits(octets=64 << 20, member_octets=32 << 20, members=100_000)
EXPECTED = {"manifest.xml": manifest(), **{f"resources/{name}": content for name, content in GOOD.items()}}


def by_directory(package: bytes, limits: PackageLimits = LIMITS) -> dict[str, bytes]:
    """Read a package by its central directory."""
    directory = read_directory(io.BytesIO(package), limits)
    return {member.name: directory.read(member) for member in directory.members}


def packed_as(*names: str) -> bytes:
    """A package of small members with these names, each with its name as content; folders have none."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name in names:
            package.writestr(name, b"" if name.endswith("/") else name.encode())
    return out.getvalue()


def test_names_may_begin_with_the_folder_that_was_packed() -> None:
    """As `bsdtar --format zip -cf PACKAGE .` writes them."""
    package = packed_as("./", "./manifest.xml", "./r/", "./r/a", "./r/b", "c")
    expected = {"manifest.xml": b"./manifest.xml", "r/a": b"./r/a", "r/b": b"./r/b", "c": b"c"}
    assert by_directory(package) == expected


@pytest.mark.parametrize(
    "names", [("./a", "a"), ("a", "./a"), ("./a", "A/b"), ("././a",), (".//a",), ("./../a",), ("a/./b",)]
)
def test_such_names_are_looked_at_like_others(names: tuple[str, ...]) -> None:
    package = packed_as(*names)
    with pytest.raises(BadPackage):
        by_directory(package)


def test_the_reader_reads_what_our_writer_writes() -> None:
    assert by_directory(several(ZipWriter())) == CONTENT
    assert list(by_directory(good())) == list(EXPECTED)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_the_reader_reads_what_zipfile_writes(method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as package:
        package.mkdir("resources")
        for name, content in CONTENT.items():
            package.writestr(name, content)
        package.comment = b"made by another program"
    assert by_directory(made.getvalue()) == CONTENT


class Pipe(io.RawIOBase):
    """A file that cannot be sought, as a socket."""

    def __init__(self) -> None:
        self.octets = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.octets += data
        return len(data)


@pytest.mark.parametrize("zip64", [False, True])
def test_what_zipfile_writes_into_a_pipe_has_data_descriptors(zip64: bool) -> None:
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in CONTENT.items():
            with package.open(name, "w", force_zip64=zip64) as member:
                member.write(content)
    octets = bytes(pipe.octets)
    assert by_directory(octets) == CONTENT


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_data_descriptors_in_every_form(large: bool, signed: bool) -> None:
    """With and without signature, of 32 and 64 bits (APPNOTE 4.3.9)."""
    content = b"abc" * 1_000
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = compressor.compress(content) + compressor.flush()
    facts = (zlib.crc32(content), len(body), len(content))
    head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 8, 8, 0, 33, 0, 0, 0, 1, 0) + b"a"
    octets = head + body + (b"PK\7\x08" if signed else b"") + struct.pack("<IQQ" if large else "<III", *facts)
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 8, 8, 0, 33, *facts, 1, 0, 0, 0, 0, 0, 0) + b"a"
    package = octets + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(octets), 0)
    assert by_directory(package) == {"a": content}


def test_a_long_member_comes_in_blocks() -> None:
    content = random.Random(1).randbytes(100_000) * 30
    for deflate in (True, False):
        for known in (True, False):
            writer = ZipWriter()
            octets = len(content) if known else None
            package = b"".join(writer.stream("long", [content], octets=octets, deflate=deflate)) + writer.end()
            assert by_directory(package) == {"long": content}


@pytest.mark.parametrize("content", [bytes(12 << 20), b"the same line\n" * 800_000], ids=["zeros", "lines"])
@pytest.mark.parametrize("how", ["member", "stream"])
def test_content_that_shrinks_as_a_bomb_does_can_be_read(content: bytes, how: str) -> None:
    """What our writer writes is within the bounds that readers have (DST-P6); it is deflated nevertheless."""
    writer = ZipWriter()
    if how == "member":
        package = writer.member("sparse", content, deflate=True) + writer.end()
    else:
        package = b"".join(writer.stream("sparse", [content], deflate=True)) + writer.end()
    assert len(package) < len(content) / 20
    assert by_directory(package, PackageLimits()) == {"sparse": content}


def test_a_stored_member_without_length_is_found_by_the_directory() -> None:
    assert by_directory(stored_without_length()) == {"resources/a.txt": GOOD["a.txt"]}


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.fault], ids=str)
def test_a_bad_package_is_refused_by_its_directory(name: str) -> None:
    """DST-P3, DST-P6: each fault by its name."""
    bad = BAD[name]
    assert bad.fault is not None
    with pytest.raises(bad.fault):
        by_directory(bad.make())


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if not bad.fault], ids=str)
def test_a_package_with_a_bad_manifest_is_a_good_zip_file(name: str) -> None:
    package = BAD[name].make()
    assert by_directory(package)


def zeros(name: str = "{}") -> bytes:
    """Many members, each small enough to grow as it likes."""
    writer = ZipWriter()
    members = [writer.member(name.format(number), bytes(64 << 10), deflate=True) for number in range(40)]
    return b"".join(members) + writer.end()


def unusual_zeros() -> bytes:
    """The same with names each of which has to be looked at."""
    return zeros("zero {}")


@pytest.mark.parametrize(
    ("limits", "package"),
    [
        (PackageLimits(members=2), good),
        (PackageLimits(octets=1_000), good),
        (PackageLimits(member_octets=500), good),
        (PackageLimits(manifest_octets=100), good),
        (PackageLimits(name_octets=10), good),
        (PackageLimits(names_octets=20), good),
        (PackageLimits(ratio=2, ratio_octets=100), good),
        (PackageLimits(ratio=20, package_ratio_octets=1 << 20), zeros),
        (PackageLimits(ratio=20, package_ratio_octets=1 << 20), unusual_zeros),
        (PackageLimits(extra_octets=3), lambda: several(ZipWriter())),
    ],
    ids=[
        "members",
        "octets",
        "member",
        "manifest",
        "name",
        "names",
        "ratio",
        "ratio of all",
        "ratio, names",
        "extra fields",
    ],
)
def test_each_bound_holds(limits: PackageLimits, package: object) -> None:
    octets = package()  # type: ignore[operator]
    with pytest.raises(PackageTooLarge):
        by_directory(octets, limits)


PLAIN = sum(map(len, EXPECTED.values()))
MOST = max(map(len, EXPECTED.values()))


@pytest.mark.parametrize(
    ("limits", "package"),
    [
        (PackageLimits(members=3), good),
        (PackageLimits(octets=PLAIN), good),
        (PackageLimits(member_octets=MOST), good),
        (PackageLimits(manifest_octets=len(EXPECTED["manifest.xml"])), good),
        (PackageLimits(name_octets=len("resources/a.txt")), good),
        (PackageLimits(names_octets=len("manifest.xml" + "resources/a.txt" * 2 + "resources")), good),
        (PackageLimits(ratio=1_000, package_ratio_octets=1 << 20), zeros),
        (PackageLimits(ratio=1_000, package_ratio_octets=1 << 20), unusual_zeros),
        (PackageLimits(ratio=1, package_ratio_octets=40 * (64 << 10)), zeros),
    ],
    ids=["members", "octets", "member", "manifest", "name", "names", "ratio", "ratio, names", "octets that may grow"],
)
def test_what_is_just_within_a_bound_is_read(limits: PackageLimits, package: object) -> None:
    octets = package()  # type: ignore[operator]
    assert len(by_directory(octets, limits)) in (3, 40)


END_FIELDS = {"disk": 4, "disk of the directory": 6, "records here": 8, "records": 10, "size": 12, "begin": 16}


@pytest.mark.parametrize("field", END_FIELDS)
def test_each_field_of_the_end_has_to_be_right(field: str) -> None:
    """By a directory that lies elsewhere, another reader would see other members."""
    octets = bytearray(good())
    octets[len(octets) - 22 + END_FIELDS[field]] += 1
    with pytest.raises(BadPackage):
        by_directory(bytes(octets))


LONG = random.Random(3).randbytes((1 << 20) + 10)
WRONG = {
    "CRC": lambda crc, packed, plain: (crc ^ 1, packed, plain),
    "packed length": lambda crc, packed, plain: (crc, packed - 1, plain),
    "length": lambda crc, packed, plain: (crc, packed, plain + 1),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("content", [b"short " * 40, LONG], ids=["short", "long"])
@pytest.mark.parametrize("how", ["stored", "deflated", "deflated, with a descriptor"])
def test_what_is_said_of_a_member_has_to_be_true(wrong: str, content: bytes, how: str) -> None:
    """In the header, the descriptor and the directory alike: only the content tells. Octets come, and no end of it."""
    method = 0 if how == "stored" else 8
    body = content if method == 0 else zlib.compress(content, wbits=-15)
    crc, packed, plain = WRONG[wrong](zlib.crc32(content), len(body), len(content))
    flags = 8 if "descriptor" in how else 0
    said = struct.pack("<III", crc, packed, plain)
    head = struct.pack("<4sHHHHH", b"PK\3\4", 20, flags, method, 0, 33) + (bytes(12) if flags else said)
    local = head + struct.pack("<HH", 1, 0) + b"a" + body + (b"PK\7\x08" + said if flags else b"")
    central = struct.pack("<4sHHHHHH", b"PK\1\2", 20, 20, flags, method, 0, 33) + said
    central += struct.pack("<HHHHHII", 1, 0, 0, 0, 0, 0, 0) + b"a"
    package = local + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    with pytest.raises(BadPackage):
        by_directory(package)


@pytest.mark.parametrize(("packed", "plain"), [(0, 0), (0, -1), (-1, 0), (1, 0)])
def test_a_header_that_contradicts_its_descriptor_is_refused(packed: int, plain: int) -> None:
    """Lengths that stand in both have to be the same: readers differ in which of them they go by."""
    content = b"abc" * 1_000
    body = zlib.compress(content, wbits=-15)
    facts = (zlib.crc32(content), len(body), len(content))
    said = (0, len(body) + packed, len(content) + plain)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 8, 8, 0, 33, *said, 1, 0) + b"a" + body
    local += b"PK\7\x08" + struct.pack("<III", *facts)
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 8, 8, 0, 33, *facts, 1, 0, 0, 0, 0, 0, 0) + b"a"
    package = local + central + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    is_right = (packed, plain) == (0, 0)
    with nullcontext() if is_right else pytest.raises(BadPackage):
        assert by_directory(package) == {"a": content}


def test_the_bound_of_inflating_is_the_ratio_that_is_said() -> None:
    content = b"many times over " * 5_000
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("a", content)
    package = out.getvalue()
    ratio = -(-len(content) // written.getinfo("a").compress_size)
    for most in (ratio, ratio - 1):
        limits = PackageLimits(ratio=most, ratio_octets=100)
        with nullcontext() if most == ratio else pytest.raises(PackageTooLarge, match=f"more than {most} times"):
            assert by_directory(package, limits) == {"a": content}


SMALL = good()


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255))
@settings(max_examples=examples(900), deadline=None)
def test_a_flipped_octet_never_gives_wrong_content(place: int, flip: int) -> None:
    """Either the package is refused, or every member is what it was; a name may be another, with that content."""
    package = bytearray(SMALL)
    package[place] ^= flip
    assert set(read_if_good(bytes(package)).values()) <= set(EXPECTED.values())


@given(st.integers(0, len(SMALL) - 1))
@settings(max_examples=examples(450), deadline=None)
def test_a_cut_package_is_always_noticed(place: int) -> None:
    with pytest.raises(BadPackage):
        by_directory(SMALL[:place])


@given(st.binary(max_size=300), st.integers(0, len(SMALL)))
@settings(max_examples=examples(450), deadline=None)
def test_octets_that_are_put_in_never_give_wrong_content(octets: bytes, place: int) -> None:
    package = SMALL[:place] + octets + SMALL[place:]
    assert set(read_if_good(package).values()) <= set(EXPECTED.values())


def read_if_good(package: bytes) -> dict[str, bytes]:
    """The members of a package; none where it is refused."""
    try:
        return by_directory(package)
    except BadPackage:
        return {}


NAMES = st.text("abcäñ日-_ .~%", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@given(
    st.dictionaries(NAMES, st.tuples(st.binary(max_size=3_000), st.booleans(), st.sampled_from(["member", "stream"]))),
)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_written_is_read(members: dict[str, tuple[bytes, bool, str]]) -> None:
    writer, names, expected, package = ZipWriter(), MemberNames(), {}, b""
    for name, (content, deflate, how) in members.items():
        try:
            names.add(name)
        except BadPath:
            continue
        expected[name] = content
        if how == "member":
            package += writer.member(name, content, deflate=deflate)
        else:
            package += b"".join(writer.stream(name, [content], octets=len(content), deflate=deflate))
    package += writer.end()
    assert by_directory(package) == expected


def test_offsets_beyond_4_gib_are_read(tmp_path: Path) -> None:
    writer = ZipWriter((1 << 32) - 100)
    with (tmp_path / "package.zip").open("w+b") as file:
        file.seek((1 << 32) - 100)
        file.write(b"".join(writer.member(str(n), bytes([n]) * 99, deflate=False) for n in range(3)) + writer.end())
        directory = read_directory(file, LIMITS)
        assert [directory.read(member) for member in directory.members] == [bytes([n]) * 99 for n in range(3)]
        assert directory.leading == (1 << 32) - 100


def test_many_members_are_read() -> None:
    writer = ZipWriter()
    package = b"".join(writer.member(str(n), b"x", deflate=False) for n in range(65_536)) + writer.end()
    assert len(read_directory(io.BytesIO(package), LIMITS).members) == 65_536


def test_a_comment_is_read_over() -> None:
    package = raw([], comment=os.urandom(4).hex().encode())
    assert by_directory(package) == {}


def test_names_are_counted_while_the_directory_is_read() -> None:
    """What a hostile directory has beyond the bound is not held in memory first (DST-P6)."""
    file = io.BytesIO(packed_as(*(f"{n:04d}{'a' * 200}" for n in range(1_000))))
    with pytest.raises(PackageTooLarge):
        read_directory(file, PackageLimits(names_octets=2_000))
    left = file.tell()
    assert file.seek(0, os.SEEK_END) - left > 900 * 250
