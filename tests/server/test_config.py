"""The configuration file: every key is documented, wrong ones are refused with their path."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headwater.publish.site import BadSite
from headwater.server.config import BadConfiguration, SetConfig, SourceConfig, read_config
from headwater.spec.writer import Profile

MANUAL = Path(__file__).parents[2] / "docs" / "configuration.md"


def write(folder: Path, text: str) -> Path:
    path = folder / "source.toml"
    path.write_text(text)
    return path


def test_every_key_is_in_the_manual() -> None:
    text = MANUAL.read_text()
    top, _, sets = text.partition("## `[[set]]`")
    for section, kind in ((top, SourceConfig), (sets, SetConfig)):
        for field in msgspec.structs.fields(kind):
            if field.encode_name != "set":
                assert f"| `{field.encode_name}` |" in section, f"{field.encode_name} is missing from the manual"


def test_the_manual_names_no_key_that_is_none() -> None:
    known = {field.encode_name for kind in (SourceConfig, SetConfig) for field in msgspec.structs.fields(kind)}
    rows = [line for line in MANUAL.read_text().splitlines() if line.startswith("| `")]
    assert {line.split("`")[1] for line in rows} <= known


def test_the_example_of_the_manual_is_a_configuration(tmp_path: Path) -> None:
    example = MANUAL.read_text().partition("```toml\n")[2].partition("```")[0]
    assert len(read_config(write(tmp_path, example)).sets) == 2


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = read_config(
        write(
            tmp_path, 'state = "state"\nprofile = "both"\n[[set]]\nfiles = "/abs"\n[[set]]\nname = "b"\nfiles = "b"\n'
        )
    )
    assert config.state == str(tmp_path / "state")
    assert [one.files for one in config.sets] == ["/abs", str(tmp_path / "b")]
    assert config.profile is Profile.BOTH


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("state = ", "not TOML"),
        ("", "state"),
        ('state = "s"', "set"),
        ('state = "s"\nset = []', "no set"),
        ('state = "s"\nhots = "h"\n[[set]]\nfiles = "f"', "hots"),
        ('state = "s"\n[[set]]\nfiles = "f"\n[[set]]\nfiles = "f"\nrefesh = 1', "$.set[1]"),
        ('state = "s"\nport = 70000\n[[set]]\nfiles = "f"', "$.port"),
        ('state = "s"\nport = "x"\n[[set]]\nfiles = "f"', "$.port"),
        ('state = "s"\n[[set]]\nfiles = "f"\nmax_delete = 2', "$.set[0].max_delete"),
        ('state = "s"\n[[set]]\nfiles = "f"\nrescan_seconds = 0', "$.set[0].rescan_seconds"),
        ('state = "s"\npage_entries = 50001\n[[set]]\nfiles = "f"', "$.page_entries"),
        ('state = "s"\nprofile = "1.0"\n[[set]]\nfiles = "f"', "$.profile"),
    ],
)
def test_wrong_configurations(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadConfiguration) as refused:
        read_config(write(tmp_path, text))
    assert words in str(refused.value)


@pytest.mark.parametrize("line", ['name = "Bad"', 'describedby = "nowhere"', 'resource_base = "ftp://x"'])
def test_wrong_names_are_told_when_the_file_is_read(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadSite):
        read_config(write(tmp_path, f'state = "s"\n[[set]]\nfiles = "f"\n{line}\n'))


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.toml", tmp_path):
        with pytest.raises(BadConfiguration):
            read_config(path)
    path = tmp_path / "latin.toml"
    path.write_bytes(b'state = "\xff"')
    with pytest.raises(BadConfiguration):
        read_config(path)
