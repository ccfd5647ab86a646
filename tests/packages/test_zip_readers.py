"""Both readers of packages: what is good comes whole, what is bad is refused by each, whatever the cuts."""

import io
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.packages.faults import BadPackage, NeedsDirectory, PackageTooLarge
from headwater.packages.inflation import Inflation
from headwater.packages.limits import PackageLimits
from headwater.packages.member_paths import MemberNames
from headwater.packages.zip_directory import read_directory
from headwater.packages.zip_stream import MemberBegin, MemberData, MemberEnd, ZipStream
from headwater.packages.zip_writer import ZipWriter
from tests.packages.bad_packages import BAD, ENDLESS, GOOD, NEEDS_DIRECTORY, good, manifest, raw, stored_without_length
from tests.packages.test_zip_writer import CONTENT, several
from tests.support.examples import examples

pytestmark = pytest.mark.long(50)

LIMITS = PackageLimits(octets=64 << 20, member_octets=32 << 20, members=100_000)
EXPECTED = {"manifest.xml": manifest(), **{f"resources/{name}": content for name, content in GOOD.items()}}


def streamed(chunks: Iterator[bytes], whole: dict[str, bytes], limits: PackageLimits = LIMITS) -> None:
    """Read a package while it arrives; the members that are whole are put into `whole`."""
    stream = ZipStream(limits)
    content: list[bytes] = []
    begun: list[str] = []
    for chunk in chunks:
        for event in stream.push(chunk):
            match event:
                case MemberBegin(name, _):
                    begun.append(name)
                    content = []
                case MemberData(octets):
                    content.append(octets)
                case MemberEnd(name, octets):
                    assert begun[-1] == name
                    assert name not in whole
                    whole[name] = b"".join(content)
                    assert len(whole[name]) == octets
                    assert octets > 1 << 20 or len(content) == 1, "a small member comes as one"
    stream.finish()


def cut(package: bytes, size: int) -> Iterator[bytes]:
    """The package in pieces."""
    return (package[start : start + size] for start in range(0, len(package), size))


def by_directory(package: bytes, limits: PackageLimits = LIMITS) -> dict[str, bytes]:
    """Read a package by its central directory."""
    directory = read_directory(io.BytesIO(package), limits)
    return {member.name: directory.read(member) for member in directory.members}


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
def test_the_stream_reader_gives_the_same_however_octets_arrive(size: int) -> None:
    whole: dict[str, bytes] = {}
    streamed(cut(several(ZipWriter()), size), whole)
    assert whole == CONTENT


def packed_as(*names: str) -> bytes:
    """A package of small members with these names, each with its name as content; folders have none."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name in names:
            package.writestr(name, b"" if name.endswith("/") else name.encode())
    return out.getvalue()


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
def test_names_may_begin_with_the_folder_that_was_packed(size: int) -> None:
    """As `bsdtar --format zip -cf PACKAGE .` writes them."""
    package = packed_as("./", "./manifest.xml", "./r/", "./r/a", "./r/b", "c")
    expected = {"manifest.xml": b"./manifest.xml", "r/a": b"./r/a", "r/b": b"./r/b", "c": b"c"}
    whole: dict[str, bytes] = {}
    streamed(cut(package, size), whole)
    assert whole == expected
    assert by_directory(package) == expected


@pytest.mark.parametrize(
    "names", [("./a", "a"), ("a", "./a"), ("./a", "A/b"), ("././a",), (".//a",), ("./../a",), ("a/./b",)]
)
def test_such_names_are_looked_at_like_others(names: tuple[str, ...]) -> None:
    package = packed_as(*names)
    with pytest.raises(BadPackage):
        by_directory(package)
    with pytest.raises(BadPackage):
        streamed(cut(package, 1 << 20), {})


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
def test_small_members_come_whole_however_octets_arrive(size: int) -> None:
    """In lists, the same ones whatever is cut, for a reader of many."""
    writer = ZipWriter()
    octets = [writer.member(f"r/{number}", b"content " * number, deflate=number % 2 == 0) for number in range(50)]
    stream = ZipStream(LIMITS)
    events = [event for chunk in cut(b"".join([*octets, writer.end()]), size) for event in stream.push_whole(chunk)]
    stream.finish()
    assert all(isinstance(event, list) for event in events)
    whole = [(member.name, member.octets) for event in events if isinstance(event, list) for member in event]
    assert whole == [(f"r/{number}", b"content " * number) for number in range(50)]


def test_both_readers_read_what_our_writer_writes() -> None:
    assert by_directory(several(ZipWriter())) == CONTENT
    assert list(by_directory(good())) == list(EXPECTED)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_both_readers_read_what_zipfile_writes(method: int) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as package:
        package.mkdir("resources")
        for name, content in CONTENT.items():
            package.writestr(name, content)
        package.comment = b"made by another program"
    whole: dict[str, bytes] = {}
    streamed(cut(made.getvalue(), 999), whole)
    assert whole == CONTENT
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
    whole: dict[str, bytes] = {}
    streamed(cut(octets, 1_000), whole)
    assert whole == CONTENT == by_directory(octets)


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
    whole: dict[str, bytes] = {}
    streamed(cut(package, 5), whole)
    assert whole == {"a": content} == by_directory(package)


def test_a_long_member_comes_in_blocks() -> None:
    content = random.Random(1).randbytes(100_000) * 30
    for deflate in (True, False):
        for known in (True, False):
            writer = ZipWriter()
            octets = len(content) if known else None
            package = b"".join(writer.stream("long", [content], octets=octets, deflate=deflate)) + writer.end()
            whole: dict[str, bytes] = {}
            streamed(cut(package, 100_000), whole)
            assert whole == {"long": content} == by_directory(package)


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
    whole: dict[str, bytes] = {}
    streamed(cut(package, 100_000), whole, PackageLimits())
    assert whole == {"sparse": content} == by_directory(package, PackageLimits())


def test_a_stored_member_without_length_needs_the_directory() -> None:
    with pytest.raises(NeedsDirectory):
        streamed(cut(stored_without_length(), 1_000), {})
    assert by_directory(stored_without_length()) == {"resources/a.txt": GOOD["a.txt"]}


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.fault], ids=str)
def test_a_bad_package_is_refused_by_its_directory(name: str) -> None:
    """DST-P3, DST-P6: each fault by its name."""
    bad = BAD[name]
    assert bad.fault is not None
    with pytest.raises(bad.fault):
        by_directory(bad.make())


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if bad.fault], ids=str)
def test_a_bad_package_is_refused_while_it_arrives(name: str) -> None:
    """What came before may be whole members, each right by itself; never one that the fault is about."""
    bad = BAD[name]
    whole: dict[str, bytes] = {}
    with pytest.raises(NeedsDirectory if name in NEEDS_DIRECTORY else BadPackage):
        streamed(cut(bad.make(), 60_000), whole)
    assert not {found for found in whole if ".." in found or found.startswith("/") or "\\" in found}


@pytest.mark.parametrize("name", [name for name, bad in BAD.items() if not bad.fault], ids=str)
def test_a_package_with_a_bad_manifest_is_a_good_zip_file(name: str) -> None:
    package = BAD[name].make()
    content = by_directory(package)
    whole: dict[str, bytes] = {}
    if name in NEEDS_DIRECTORY:
        with pytest.raises(NeedsDirectory):
            streamed(cut(package, 1_000), whole)
    else:
        streamed(cut(package, 1_000), whole)
        assert whole == content


@pytest.mark.parametrize("name", ENDLESS)
def test_a_package_that_never_ends_is_given_up(name: str) -> None:
    limits = PackageLimits(octets=8 << 20, member_octets=4 << 20, members=2_000)
    with pytest.raises(PackageTooLarge):
        streamed(islice(ENDLESS[name](), 10_000), {}, limits)


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
        streamed(cut(octets, 1_000), {}, limits)
    if limits.extra_octets > 3:
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
    whole: dict[str, bytes] = {}
    streamed(cut(octets, 1_000), whole, limits)
    assert len(whole) in (3, 40)
    assert by_directory(octets, limits) == whole


END_FIELDS = {"disk": 4, "disk of the directory": 6, "records here": 8, "records": 10, "size": 12, "begin": 16}


@pytest.mark.parametrize("size", [7, 1 << 20])
@pytest.mark.parametrize("field", END_FIELDS)
def test_each_field_of_the_end_has_to_be_right(field: str, size: int) -> None:
    """By a directory that lies elsewhere, another reader would see other members."""
    octets = bytearray(good())
    octets[len(octets) - 22 + END_FIELDS[field]] += 1
    with pytest.raises(BadPackage):
        streamed(cut(bytes(octets), size), {})
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
    whole: dict[str, bytes] = {}
    with pytest.raises(BadPackage):
        streamed(cut(package, 1 << 16), whole)
    assert whole == {}
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
    whole: dict[str, bytes] = {}
    is_right = (packed, plain) == (0, 0)
    with nullcontext() if is_right else pytest.raises(BadPackage):
        streamed(cut(package, 100), whole)
    assert whole == ({"a": content} if is_right else {})


def test_what_was_found_to_be_bad_is_read_no_further() -> None:
    """Whatever comes behind it: what is left of the package might look like a good one."""
    stream = ZipStream(LIMITS)
    with pytest.raises(BadPackage):
        list(stream.push(b"PK\3\4" + b"\xff" * 100))
    with pytest.raises(BadPackage, match="before"):
        list(stream.push(good()))


def test_the_bound_of_inflating_is_the_ratio_that_is_said() -> None:
    content = b"many times over " * 5_000
    body = zlib.compress(content, wbits=-15)
    ratio = -(-len(content) // len(body))
    for most in (ratio, ratio - 1):
        inflation = Inflation("a", PackageLimits(ratio=most, ratio_octets=100), len(content), said=True)
        with nullcontext() if most == ratio else pytest.raises(PackageTooLarge, match=f"more than {most} times"):
            assert b"".join(inflation.push(body)) == content


def right(name: str, content: bytes) -> bool:
    """Whether a member of the good package is what it was."""
    return EXPECTED.get(name) == content


SMALL = good()


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 255), st.integers(1, 700))
@settings(max_examples=examples(900), deadline=None)
def test_a_flipped_octet_never_gives_wrong_content(place: int, flip: int, size: int) -> None:
    """Either the package is refused, or every member is what it was; a name may be another, with that content."""
    package = bytearray(SMALL)
    package[place] ^= flip
    whole: dict[str, bytes] = {}
    for read in (
        lambda: streamed(cut(bytes(package), size), whole),
        lambda: whole.update(by_directory(bytes(package))),
    ):
        try:
            read()
        except (BadPackage, NeedsDirectory):
            continue
    assert set(whole.values()) <= set(EXPECTED.values())


MIXED = several(ZipWriter())


def outcome(package: bytes, size: int) -> tuple[dict[str, bytes], str]:
    """The members that came whole, and how the reading ended."""
    whole: dict[str, bytes] = {}
    try:
        streamed(cut(package, size), whole)
    except (BadPackage, NeedsDirectory) as fault:
        return whole, fault.code
    return whole, "read"


@given(
    st.one_of(
        st.tuples(st.just(SMALL), st.integers(1, len(SMALL))),
        st.tuples(st.just(MIXED), st.integers(50, 5_000)),  # 98,000 octets: one at a time they take seconds
    ),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 255),
    st.floats(0.5, 1),
)
@settings(max_examples=examples(450), deadline=None)
def test_damage_is_found_the_same_however_octets_arrive(
    cuts: tuple[bytes, int], place: float, flip: int, length: float
) -> None:
    good_one, size = cuts
    package = bytearray(good_one)
    package[int(place * len(package))] ^= flip
    octets = bytes(package[: int(length * len(package))])
    assert outcome(octets, size) == outcome(octets, len(octets))


@given(st.integers(0, len(SMALL) - 1), st.integers(1, 700))
@settings(max_examples=examples(450), deadline=None)
def test_a_cut_package_is_always_noticed(place: int, size: int) -> None:
    whole: dict[str, bytes] = {}
    with pytest.raises((BadPackage, NeedsDirectory)):
        streamed(cut(SMALL[:place], size), whole)
    assert all(right(name, content) for name, content in whole.items())
    with pytest.raises(BadPackage):
        by_directory(SMALL[:place])


@given(st.binary(max_size=300), st.integers(0, len(SMALL)))
@settings(max_examples=examples(450), deadline=None)
def test_octets_that_are_put_in_never_give_wrong_content(octets: bytes, place: int) -> None:
    package = SMALL[:place] + octets + SMALL[place:]
    whole: dict[str, bytes] = {}
    for read in (lambda: streamed(cut(package, 333), whole), lambda: whole.update(by_directory(package))):
        try:
            read()
        except (BadPackage, NeedsDirectory):
            continue
    assert set(whole.values()) <= set(EXPECTED.values())


NAMES = st.text("abcäñ日-_ .~%", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@given(
    st.dictionaries(NAMES, st.tuples(st.binary(max_size=3_000), st.booleans(), st.sampled_from(["member", "stream"]))),
    st.integers(1, 5_000),
)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_written_is_read(members: dict[str, tuple[bytes, bool, str]], size: int) -> None:
    writer, names, expected, package = ZipWriter(), MemberNames(), {}, b""
    for name, (content, deflate, how) in members.items():
        if not names.admits(name):
            continue
        names.add(name)
        expected[name] = content
        if how == "member":
            package += writer.member(name, content, deflate=deflate)
        else:
            package += b"".join(writer.stream(name, [content], octets=len(content), deflate=deflate))
    package += writer.end()
    whole: dict[str, bytes] = {}
    streamed(cut(package, size), whole)
    assert whole == expected == by_directory(package)


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
    whole: dict[str, bytes] = {}
    streamed(cut(package, 1 << 18), whole)
    assert len(whole) == 65_536
    assert len(read_directory(io.BytesIO(package), LIMITS).members) == 65_536


def test_a_comment_is_read_over() -> None:
    package = raw([], comment=os.urandom(4).hex().encode())
    streamed(cut(package, 3), {})
    assert by_directory(package) == {}
