"""Random numbers that belong to a purpose and a place, so that no state has to be kept or restored."""

import numpy as np

PURPOSES = ("prompts", "samples", "order", "demonstrations", "held_out")


def stream(seed: int, purpose: str, place: int = 0) -> np.random.Generator:
    """The random numbers of a purpose, such as the samples of the rollout at `place`.

    Independent of every other purpose and place, whatever was drawn before: a run that resumes needs no more
    than its place.

    >>> stream(0, "order", 3).random() == stream(0, "order", 3).random() != stream(0, "order", 4).random()
    True
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(PURPOSES.index(purpose), place)))
