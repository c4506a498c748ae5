"""The same seed draws the same faults, and all kinds are drawn."""

from __future__ import annotations

from typing import get_args

from tests.chaos.schedule import (
    DEATHS_A_PARENT,
    END_A_PARENT,
    LANES,
    TURNS,
    Fault,
    draw_episode,
)


def test_the_same_seed_draws_the_same_episodes() -> None:
    for number in range(50):
        assert draw_episode(3, number) == draw_episode(3, number)
        assert draw_episode(3, number).rng.random() == draw_episode(3, number).rng.random()


def test_other_seeds_and_numbers_draw_others() -> None:
    episodes = [draw_episode(seed, number) for seed in range(5) for number in range(50)]

    assert len({repr(episode) for episode in episodes}) == len(episodes)


def test_every_kind_of_fault_is_drawn() -> None:
    episodes = [draw_episode(1, number) for number in range(150)]
    drawn: set[str] = {strike.fault for episode in episodes for strike in episode.strikes}
    drawn |= {fault for episode in episodes for fault, _ in episode.scripted}
    drawn |= {f"store: {harm}" for episode in episodes for _, harm in episode.harms}

    assert set(TURNS) == set(LANES) - {"aimed at store"}
    assert drawn == set(get_args(Fault)) - {"two workers"}


def test_no_parent_sees_so_many_deaths_that_rows_are_rightly_blamed() -> None:
    for number in range(300):
        episode = draw_episode(2, number, "alone")
        deaths = 0
        for strike in episode.strikes:
            deaths = 0 if strike.fault in END_A_PARENT else deaths + 1
            deaths -= strike.fault == "second start"

            assert deaths <= DEATHS_A_PARENT
