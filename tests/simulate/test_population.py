"""The laws of change: the n-th change follows from the seed and what was before, whoever asks and after what pause."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from headwater.simulate.resources import Mix, Population, Prng, key_of
from headwater.spec.records import ChangeKind

SHARES = st.floats(0, 1, allow_nan=False)
MIXES = (
    st.tuples(SHARES, SHARES, SHARES)
    .filter(any)
    .map(lambda three: {kind: share for kind, share in zip(ChangeKind, three, strict=True) if share})
)
KEY = key_of(1, "changes")
UPDATES = {ChangeKind.UPDATED: 1.0}


@given(MIXES, st.integers(0, 30), st.integers(0, 80))
def test_who_takes_up_the_log_goes_on_as_if_nothing_had_been(mix: Mix, initial: int, pause: int) -> None:
    whole, first = Population(KEY, initial), Population(KEY, initial)
    expected = [whole.next(step, mix) for step in range(1, 161)]
    log = [first.next(step, mix) for step in range(1, pause + 1)]
    again = Population(KEY, initial)
    for happened in log:
        if happened is not None:
            again.apply(*happened)
    assert log + [again.next(step, mix) for step in range(pause + 1, 161)] == expected
    assert again.count == whole.count


@example(mix={ChangeKind.CREATED: 5e-324}, initial=0)
@given(MIXES, st.integers(0, 20))
def test_only_what_is_there_changes_and_only_what_is_not_is_created(mix: Mix, initial: int) -> None:
    population, alive = Population(KEY, initial), set(range(initial))
    born = initial
    for step in range(200):
        happened = population.next(step, mix)
        if happened is None:
            assert not alive
            assert ChangeKind.CREATED not in mix
            continue
        change, number = happened
        if change is ChangeKind.CREATED:
            assert number == born
            assert ChangeKind.CREATED in mix
            born += 1
            alive.add(number)
        else:
            assert number in alive
            assert change in mix
        if change is ChangeKind.DELETED:
            alive.remove(number)
        assert population.count == len(alive)
        assert population.born == born
        assert bool(population._alive[number]) == (number in alive)


def test_the_mix_is_kept() -> None:
    population = Population(KEY, 1_000)
    mix = {ChangeKind.CREATED: 2.0, ChangeKind.UPDATED: 7.0, ChangeKind.DELETED: 1.0}
    kinds = Counter(happened[0] for step in range(20_000) if (happened := population.next(step, mix)))
    assert abs(kinds[ChangeKind.CREATED] / 20_000 - 0.2) < 0.02
    assert abs(kinds[ChangeKind.UPDATED] / 20_000 - 0.7) < 0.02
    assert abs(kinds[ChangeKind.DELETED] / 20_000 - 0.1) < 0.02


def test_every_living_resource_is_as_likely_as_another() -> None:
    population = Population(KEY, 100)
    times = Counter(happened[1] for step in range(20_000) if (happened := population.next(step, UPDATES)))
    assert len(times) == 100
    assert 120 < min(times.values()) <= max(times.values()) < 290


def test_few_among_many_are_found() -> None:
    population = Population(KEY, 10_000)
    for number in range(10_000):
        if number != 4_321:
            population.apply(ChangeKind.DELETED, number)
    assert [population.next(step, UPDATES) for step in range(20)] == [(ChangeKind.UPDATED, 4_321)] * 20
    assert population.next(20, {ChangeKind.DELETED: 1.0}) == (ChangeKind.DELETED, 4_321)
    assert population.next(21, {ChangeKind.DELETED: 1.0}) is None


def test_ten_million_take_ten_million_octets() -> None:
    population = Population(KEY, 10_000_000)
    assert population.next(1, UPDATES) is not None
    assert len(population._alive) == 10_000_000


@given(st.integers(0, 2**64), st.integers(1, 2**40))
def test_chance_stays_in_its_bounds(counter: int, end: int) -> None:
    chance = Prng(KEY)
    assert 0 <= chance.draw(counter) < 2**64
    assert 0 <= chance.below(end, counter) < end
    assert chance.draw(counter) == Prng(KEY).draw(counter)
