"""Settings: what is understood, what is refused with advice, and the presets."""

from __future__ import annotations

import pytest

from headwater.simulate.resources import (
    PRESETS,
    BadSimulation,
    ChangeSettings,
    Mix,
    Sizes,
    SourceSettings,
    read_mix,
    read_sizes,
    scaled,
    settings_of,
)
from headwater.spec.records import ChangeKind


@pytest.mark.parametrize(("text", "sizes"), [("0", (0, 0)), ("4096", (4096, 4096)), ("1-8191", (1, 8191))])
def test_sizes(text: str, sizes: Sizes) -> None:
    assert read_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "-1", "a", "9-1", "1-", "1k", "99999999999999999999", "1 - 2", "4096\n"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadSimulation):
        read_sizes(text)


@pytest.mark.parametrize(
    ("text", "mix"),
    [
        ("created=1,updated=8,deleted=1", {ChangeKind.CREATED: 1.0, ChangeKind.UPDATED: 8.0, ChangeKind.DELETED: 1.0}),
        ("updated=0.5", {ChangeKind.UPDATED: 0.5}),
        ("deleted=1, created=2", {ChangeKind.CREATED: 2.0, ChangeKind.DELETED: 1.0}),
    ],
)
def test_mixes(text: str, mix: Mix) -> None:
    assert read_mix(text) == mix
    assert [kind for kind in ChangeKind if kind in mix] == list(read_mix(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "created",
        "created=x",
        "created=-1",
        "created=nan",
        "created=inf",
        "created=0",
        "moved=1",
        "created=1,created=2",
    ],
)
def test_what_is_no_mix(text: str) -> None:
    with pytest.raises(BadSimulation):
        read_mix(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resources": -1},
        {"resources": 10**10},
        {"sets": ()},
        {"hashes": ("crc",)},
        {"suffixes": ()},
        {"suffixes": ("a/b",)},
        {"suffixes": ("PDF",)},
    ],
)
def test_no_such_world(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSimulation):
        settings_of(SourceSettings, {"resources": 1, "sets": ("s",)} | wrong)


@pytest.mark.parametrize("wrong", [{"rate": -1}, {"rate": 1e9}, {"warp": 0}, {"warp": -1}, {"rate": float("nan")}])
def test_no_such_course(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSimulation):
        settings_of(ChangeSettings, wrong)


@pytest.mark.parametrize(
    ("course", "last"),
    [
        (ChangeSettings(), None),
        (ChangeSettings(changes=5), 5),
        (ChangeSettings(seconds=10, rate=3), 30),
        (ChangeSettings(seconds=10, rate=3, changes=7), 7),
    ],
)
def test_where_a_course_ends(course: ChangeSettings, last: int | None) -> None:
    assert course.last == last


def test_resources_are_shared_among_sets() -> None:
    world = SourceSettings(resources=11, sets=("a", "b", "c"))
    assert [world.share(name) for name in world.sets] == [4, 4, 3]


def test_presets_are_as_large_as_what_they_stand_for() -> None:
    assert PRESETS["arxiv"]["resources"] == 2_600_000
    assert round(PRESETS["arxiv"]["rate"] * 86_400) == 1_600
    assert PRESETS["dbpedia"]["rate"] == 1
    assert (PRESETS["core"]["resources"], PRESETS["core"]["set_count"]) == (135_000_000, 4_123)
    for preset in PRESETS.values():
        assert read_mix(preset["mix"])
        assert read_sizes(preset["sizes"])


def test_a_scaled_preset_keeps_the_size_of_its_sets() -> None:
    whole, part = PRESETS["core"], scaled("core", 0.01)
    assert (part["resources"], part["set_count"]) == (1_350_000, 41)
    assert part["rate"] == pytest.approx(whole["rate"] / 100)
    for factor in (0, -1, float("nan"), 10_000):
        with pytest.raises(BadSimulation):
            scaled("core", factor)
