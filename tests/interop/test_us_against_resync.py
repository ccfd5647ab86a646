"""Our `sync` and `audit` against trees that `resync-build` made, and against the site trees of its own tests."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.programs import headwater, resync, tree, web_server

pytestmark = pytest.mark.long(10)

FIXTURES = Path(__file__).parent.parent / "data" / "spec-examples" / "resync-fixtures"
FILES = {"a.txt": b"one\n", "c.bin": bytes(range(256)) * 40, "sub/b b.txt": b"two\n", "sub/ü.txt": b"three\n"}


class Site:
    """A web site whose ResourceSync documents `resync-build` writes."""

    def __init__(self, root: Path, url: str):
        self.root = root
        self.url = url
        for name, content in FILES.items():
            self.write(name, content)

    def write(self, name: str, content: bytes) -> None:
        path = self.root / "res" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def build(self, *mode: str, out: str, mapped: bool = True) -> None:
        path = self.root / out
        path.parent.mkdir(exist_ok=True)
        mapping = [f"{self.url}/res={self.root}/res"] if mapped else []
        said = resync("resync-build", *mode, "--outfile", path, *mapping)
        assert path.exists(), said

    def describe(self, *capabilities: str) -> None:
        """Capability List and Source Description for the documents named."""
        listed = ",".join(f"{name}={self.url}/{name}.xml" for name in capabilities)
        description = f"{self.url}/.well-known/resourcesync"
        self.build(
            "--write-capabilitylist",
            listed,
            "--sourcedescription-link",
            description,
            out="capabilitylist.xml",
            mapped=False,
        )
        listed = f"{self.url}/capabilitylist.xml"
        self.build("--write-sourcedescription", listed, out=".well-known/resourcesync", mapped=False)

    def list_resources(self, *hashes: str) -> None:
        up = f"{self.url}/capabilitylist.xml"
        wanted = [argument for name in hashes for argument in ("--hash", name)]
        self.build("--write-resourcelist", *wanted, "--capabilitylist-link", up, out="resourcelist.xml")

    def list_changes(self, reference: Path) -> None:
        up = f"{self.url}/capabilitylist.xml"
        mode = ("--write-changelist", "--hash", "md5", "--reference", str(reference), "--capabilitylist-link", up)
        self.build(*mode, out="changelist.xml")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    root = tmp_path / "site"
    root.mkdir()
    with web_server(root) as url:
        yield Site(root, url)


@pytest.mark.parametrize("hashes", [(), ("md5",), ("md5", "sha-256")])
def test_baseline_again_and_audit(hashes: tuple[str, ...], site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    site.list_resources(*hashes)
    site.describe("resourcelist")
    headwater("sync", site.url, copy)
    assert tree(copy) == tree(site.root / "res")
    headwater("audit", site.url, copy)

    site.write("a.txt", b"ONE, longer now\n")
    site.write("new.txt", b"new\n")
    (site.root / "res" / "c.bin").unlink()
    site.list_resources(*hashes)
    headwater("audit", site.url, copy, status=1)
    headwater("sync", site.url, copy)
    assert tree(copy) == tree(site.root / "res")
    headwater("audit", site.url, copy)


def test_a_change_list_without_times_is_followed(site: Site, tmp_path: Path) -> None:
    """Their Change Lists have neither `from` nor `datetime` (RS-CL, AMB section H)."""
    copy, reference = tmp_path / "copy", tmp_path / "reference.xml"
    site.list_resources("md5")
    site.describe("resourcelist")
    shutil.copy(site.root / "resourcelist.xml", reference)
    headwater("sync", site.url, copy)

    site.write("a.txt", b"ONE, longer now\n")
    site.write("new.txt", b"new\n")
    (site.root / "res" / "c.bin").unlink()
    site.list_changes(reference)
    site.describe("resourcelist", "changelist")
    headwater("sync", site.url, copy)
    assert tree(copy) == tree(site.root / "res")


def test_from_the_resource_list_alone(site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    site.build("--write-resourcelist", "--hash", "sha-256", out="resourcelist.xml")
    headwater("sync", f"{site.url}/resourcelist.xml", copy)
    assert tree(copy) == tree(site.root / "res")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that tests only read."""
    root = tmp_path_factory.mktemp("described")
    with web_server(root) as url:
        made = Site(root, url)
        made.list_resources("md5")
        made.describe("resourcelist")
        yield made


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (".well-known/resourcesync", "source-description"),
        ("capabilitylist.xml", "capability-list"),
        ("resourcelist.xml", "resource-list"),
    ],
)
def test_inspect_reads_what_they_write(document: str, kind: str, described: Site) -> None:
    assert json.loads(headwater("inspect", f"{described.url}/{document}", "--json"))["kind"] == kind


def test_explore_shows_what_they_offer(described: Site) -> None:
    assert f"{described.url}/resourcelist.xml" in headwater("explore", described.url)


# -- the site trees of their tests: not conforming on purpose


@contextmanager
def fixture_site(name: str, root: Path, places: dict[str, str], resources: dict[str, bytes]) -> Iterator[str]:
    """A tree of their tests, at the places it has there (in our data dashes stand for folders)."""
    for part, place in places.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURES / f"{name}-{part}.xml", root / place)
    for place, content in resources.items():
        (root / place).write_bytes(content)
    with web_server(root) as url:
        yield url


RESOURCES = {"dataset1/resource1": b"sixteen octets.\n", "dataset1/resource2": b"2", "dataset1/resource3": b""}


@pytest.mark.parametrize("start", ["resourcesync", "caps1.xml", "dataset1/resourcelist.xml"])
def test_archives1_relative_uris_and_an_empty_set(start: str, tmp_path: Path) -> None:
    places = {
        "resourcesync": "resourcesync",
        "caps1": "caps1.xml",
        "caps2": "caps2.xml",
        "resourcelist": "dataset1/resourcelist.xml",
    }
    with fixture_site("archives1", tmp_path / "site", places, RESOURCES) as url:
        check_copy(f"{url}/{start}", tmp_path / "copy")


def test_explore1_without_up_and_without_at(tmp_path: Path) -> None:
    places = {"caps1": "caps1.xml", "caps3": "caps3.xml", "resourcelist": "dataset1/resourcelist.xml"}
    with fixture_site("explore1", tmp_path / "site", places, RESOURCES) as url:
        check_copy(f"{url}/caps1.xml", tmp_path / "copy")


def test_sitemapindex1_is_a_sitemap_and_only_taken_when_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "site"
    with web_server(root) as url:
        root.mkdir()
        (root / "resources").mkdir()
        for part in ("sitemap", "sitemap00000"):
            text = (FIXTURES / f"sitemapindex1-{part}.xml").read_text().replace("http://localhost:8888", url)
            lines = [line for line in text.splitlines() if "sitemap00001" not in line and "sitemap00002" not in line]
            (root / f"{part}.xml").write_text("\n".join(lines))
        for name in ("1", "10", "100", "1000", "1001", "101"):
            (root / "resources" / name).write_text(f"this is {name}")
        headwater("sync", f"{url}/sitemap.xml", tmp_path / "refused", status=3)
        headwater("sync", "--sitemap", f"{url}/sitemap.xml", tmp_path / "copy")
    assert sorted(tree(tmp_path / "copy").values()) == sorted(tree(root / "resources").values())


def check_copy(start: str, copy: Path) -> None:
    """What can be copied is copied; what the tree only promises (a Change List that is not there) may be told."""
    headwater("sync", start, copy, status=None)
    assert sorted(tree(copy).values()) == sorted(RESOURCES.values())
