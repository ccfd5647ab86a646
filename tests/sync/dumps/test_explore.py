"""`headwater explore` over a source with dumps: packages with sizes and times, and the offer of packages on demand."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headwater.cli.explore import command
from tests.support.fake_dumps import Dumps
from tests.support.fake_source import at


@pytest.fixture
def offered(dumps: Dumps) -> Dumps:
    names = list(dumps.site.files)
    dumps.publish_packages(dumps.package(names[:3]), dumps.package(names[3:]))
    dumps.publish_change_packages(0, 50, 100)
    dumps.publish("resourcedump", "changedump", demand=True)
    return dumps


def explored(dumps: Dumps, *options: str) -> str:
    ran = CliRunner().invoke(command, [dumps.site.source.base, *options])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_the_tree_shows_packages_and_what_is_made_on_demand(offered: Dumps) -> None:
    shown = explored(offered, "--parts", "1")
    assert "package  http://" in shown
    assert f"from {at(0)}, until {at(50)}" in shown
    assert "… and 1 more packages (--parts opens more)" in shown
    assert "of packages" in shown
    assert "packages on demand  http://" in shown
    assert "10 resources, 1.00 GiB, 3 at a time" in shown


def test_json(offered: Dumps) -> None:
    (capability_list,) = json.loads(explored(offered, "--json"))["tree"]["children"]
    nodes = {node.get("capability", node["title"]): node for node in capability_list["children"]}
    lengths = [len(offered.served(f"p{number}.zip").body) for number in range(2)]
    dump = nodes["resourcedump"]
    assert dump["package_octets"] == sum(lengths)
    assert [(one["title"], one["octets"], one["at"]) for one in dump["children"]] == [
        ("package", length, at(100)) for length in lengths
    ]
    assert [(one["from"], one["until"]) for one in nodes["changedump"]["children"]] == [
        (at(0), at(50)),
        (at(50), at(100)),
    ]
    assert nodes["packages on demand"]["limits"] == {"resources": 10, "octets": 1 << 30, "requests": 3}
