"""What `exact bounds` is asked: worlds, distances between policies, horizons, numbers of repetitions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Settings of `exact bounds`; every number of a result follows from them.

    Attributes:
      gammas: discounts of the discounted processes.
      noises: how far pi is from mu, standard deviation of the noise on every logit, nats.
      mixings: shares of the new policy in the mixtures of [KL02].
      states, actions: of a random discounted process.
      mdps: random discounted processes a seed, for each discount and noise.
      shapes: (V, T) of the token trees.
      trees: trees a seed, for each shape and noise.
      horizons: T of the long worlds, at one total variation a step.
      distance: that total variation.
      distances: total variations a step, at one horizon.
      horizon: that horizon.
      seeds: independent repetitions.
      seed: of all random streams.
    """

    gammas: tuple[float, ...] = (0.5, 0.9, 0.99)
    noises: tuple[float, ...] = (0.05, 0.5, 2.0)
    mixings: tuple[float, ...] = (0.01, 0.1, 0.5, 1.0)
    states: int = 6
    actions: int = 3
    mdps: int = 60
    shapes: tuple[tuple[int, int], ...] = ((2, 2), (3, 3), (5, 3), (2, 6), (2, 10))
    trees: int = 35
    horizons: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    distance: float = 0.02
    distances: tuple[float, ...] = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
    horizon: int = 64
    seeds: int = 20
    seed: int = 0
