"""What is said while a command works: a note once, with a count and examples; a line a minute where nobody watches."""

from itertools import pairwise

import pytest

from headwater.cli.output import show_some
from headwater.cli.progress_output import MINUTE, LineEachMinute, Notes, ProgressOutput, Reminders, listening
from headwater.progress import Notice, Progress
from tests.support.waiting import Clock


def said_by(*notices: Notice) -> list[str]:
    said: list[Notice] = []
    notes = Notes(said.append, Clock().seconds)
    for notice in notices:
        notes.hear(notice)
    notes.close()
    return [f"{one.message} ({one.where})" for one in said]


def test_a_note_is_told_once_and_then_counted_with_three_examples() -> None:
    assert said_by(*(Notice("AMB-06", "odd", f"http://a/{n}") for n in range(5))) == [
        "odd (http://a/0)",
        "odd (5 times in all: http://a/0, http://a/1, http://a/2 …)",
    ]


def test_a_note_of_one_thing_needs_no_count() -> None:
    assert said_by(Notice("R", "a", "x"), Notice("R", "a", "x"), Notice("R", "b")) == ["a (x)", "b (None)"]


def test_of_what_begins_and_ends_by_turns_each_turn_is_told() -> None:
    """Else the last line of a log says that push is not at work when it has long been at work again."""
    turns = [Notice("HW-PSH-01", text, "x") for text in ("at work", "not at work", "at work", "not at work")]
    assert said_by(*turns) == ["at work (x)", "not at work (x)", "at work (x)", "not at work (x)"]


def test_many_different_notes_of_one_rule_are_not_a_wall_of_text() -> None:
    said = said_by(*(Notice("R", f"set {n} cannot be read") for n in range(500)), Notice("S", "another"))
    assert said[:2] == ["set 0 cannot be read (None)", "set 1 cannot be read (None)"]
    assert said[-2:] == ["another (None)", "480 more notes like these (None)"]
    assert len(said) == 22


def test_what_goes_on_is_told_again_after_growing_pauses() -> None:
    clock = Clock()
    told_at: list[float] = []
    notes = Notes(lambda _notice: told_at.append(clock.seconds()), clock.seconds)
    for second in range(4 * 3_600):
        clock.set(second)
        notes.hear(Notice("HW-CLU-02", "no node answers", "http://search"))
    assert told_at[:5] == [0, 60, 180, 420, 900]
    assert all(b - a <= 3_600 for a, b in pairwise(told_at))
    assert len(told_at) < 12


def test_the_notes_of_a_second_run_are_counted_anew() -> None:
    said: list[Notice] = []
    notes = Notes(said.append, Clock().seconds)
    for _ in range(2):
        for place in "abc":
            notes.hear(Notice("R", "odd", place))
        notes.close()
    assert [one.where for one in said] == ["a", "3 times in all: a, b, c"]


def test_a_line_a_minute_says_how_far_it_is() -> None:
    clock, said = Clock(), list[str]()
    minutes = LineEachMinute(said.append, clock.seconds, lambda: 3 << 20)
    clock.set(MINUTE)
    assert minutes.beat() is False
    for second in range(61, 200):
        clock.set(second)
        minutes.hear(Progress("transferring", second, 20_004, 1 << 30))
    assert said == [
        "progress: reading what the source offers, after 60.0 s",
        "progress: transferring 120 of 20,004, 1.00 GiB, 3.00 MiB under way, after 2 min 0 s",
        "progress: transferring 180 of 20,004, 1.00 GiB, 3.00 MiB under way, after 3 min 0 s",
    ]


def test_short_runs_of_a_service_say_nothing_however_long_it_works() -> None:
    """As those of `sync --follow`: each counts from its own beginning."""
    clock, said = Clock(), list[str]()
    minutes = LineEachMinute(said.append, clock.seconds)
    teller = ProgressOutput(minutes.hear, minutes.beat, rest=minutes.rest)
    for second in range(0, 300, 20):
        clock.set(second)
        teller(Progress("sets", 0, 1))
        teller.close(0)
    assert said == []
    teller(Progress("sets", 0, 1))
    clock.set(280 + MINUTE)
    teller(Progress("transferring", 5, 9))
    assert said == ["progress: transferring 5 of 9, after 60.0 s"]


def test_what_is_over_within_a_minute_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(quiet=False, bars=True, under_way=None) as teller:
        teller(Progress("scan", 1, 2))
        assert teller.beat() is False
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("status", [0, 4])
def test_quiet_says_nothing_unless_something_is_wrong(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(quiet=True, bars=True, under_way=None) as teller:
        teller(Notice("R", "odd"))
        teller.close(status)
        teller.close(4)  # of the next run, which had no notes
    assert capsys.readouterr().err == ("note: odd [R]\n" if status else "")


def test_quiet_tells_the_notes_before_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        with listening(quiet=True, bars=True, under_way=None) as teller:
            teller(Notice("R", "odd"))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert capsys.readouterr().err == "note: odd [R]\n"


def test_a_listener_that_nobody_configured_says_notes_only(capsys: pytest.CaptureFixture[str]) -> None:
    teller = ProgressOutput()
    teller(Progress("scan", 1))
    teller(Notice("R", "odd"))
    assert capsys.readouterr().err == "note: odd [R]\n"


def test_a_log_says_that_a_node_is_away_after_growing_pauses_and_when_it_is_away_again() -> None:
    clock = Clock()
    reminders = Reminders(clock.seconds)
    told: list[tuple[float, int]] = []
    for second in [*range(1_000), *range(5_000, 5_010)]:
        clock.set(second)
        if (count := reminders.due("no answer; trying again")) is not None:
            told.append((clock.seconds(), count))
    assert told == [(0, 0), (60, 60), (180, 120), (420, 240), (900, 480), (5_000, 0)]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "  a\n  b\n  … and 1 more\n"), (2, "  a\n  b\n"), (1_002, "  a\n  b\n  … and 1,000 more\n")],
)
def test_of_a_long_list_the_first_are_shown_and_how_many_more_there_are(
    count: int | None, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_some(["a", "b", "c"], 2, count=count, indent="  ")
    assert capsys.readouterr().out == shown


def test_a_list_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_some(["red\x1b[31m"], 2)
    assert capsys.readouterr().out == "red\\x1b[31m\n"
