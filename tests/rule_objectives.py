"""The objective of every method as trainers write it, in torch with autograd; imports nothing of divsim.

What such software detaches is detached here too: a keep mask, a far mask, the weight of CISPO.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rule_oracles import band_edges
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """Sampled tokens (...): log_pi_k carries the graph; keep and far are what a rule decided."""

    log_pi_k: Tensor
    log_mu_k: Tensor
    advantage: Tensor
    keep: Tensor
    far: Tensor

    @property
    def ratio(self) -> Tensor:
        return torch.exp(self.log_pi_k - self.log_mu_k)


def reinforce(sample: Sample) -> Tensor:
    return sample.advantage * sample.log_pi_k


def masked(sample: Sample) -> Tensor:
    return sample.ratio * sample.advantage * sample.keep


def ppo(sample: Sample, low: float = 0.8, high: float = 1.2) -> Tensor:
    clipped = torch.clamp(sample.ratio, low, high)
    return torch.minimum(sample.ratio * sample.advantage, clipped * sample.advantage)


def dual_clip(sample: Sample, upper: float = 3.0) -> Tensor:
    floor = torch.maximum(ppo(sample), upper * sample.advantage)
    return torch.where(sample.advantage < 0, floor, ppo(sample))


def band(sample: Sample, divergence: str, delta: float = 0.05) -> Tensor:
    edges = [band_edges(mu_k, divergence, delta) for mu_k in sample.log_mu_k.exp().flatten().tolist()]
    low, high = torch.tensor(edges, dtype=torch.float64).reshape(*sample.log_mu_k.shape, 2).unbind(-1)
    clipped = torch.minimum(torch.maximum(sample.ratio, low), high)
    return torch.minimum(sample.ratio * sample.advantage, clipped * sample.advantage)


def two_sided(sample: Sample, tau: float = 1e-3) -> Tensor:
    return masked(sample) - tau * (sample.log_pi_k - sample.log_mu_k) ** 2


def spo(sample: Sample, eps: float = 0.2) -> Tensor:
    penalty = sample.advantage.abs() * (sample.ratio - 1) ** 2 / (2 * eps)
    return sample.ratio * sample.advantage - penalty


def drpo(sample: Sample, delta: float = 0.15) -> Tensor:
    penalty = sample.advantage.abs() * sample.log_mu_k.exp() * (sample.ratio - 1) ** 2 / (2 * delta)
    return sample.ratio * sample.advantage - penalty


def drpo_unweighted(sample: Sample, delta: float = 0.15) -> Tensor:
    gap = sample.log_pi_k.exp() - sample.log_mu_k.exp()
    return sample.ratio * sample.advantage - gap**2 / (2 * delta * sample.log_mu_k.exp())


def mask_drpo(sample: Sample) -> Tensor:
    return torch.where(sample.far, drpo(sample), sample.ratio * sample.advantage)


def cispo(sample: Sample) -> Tensor:
    weight = torch.clamp(sample.ratio, 0.0, 5.0).detach()
    return weight * sample.advantage * sample.log_pi_k


_NAMED: dict[str, Callable[[Sample], Tensor]] = {
    "reinforce": reinforce,
    "ppo_clip": ppo,
    "clip_higher": partial(ppo, high=1.28),
    "dual_clip": dual_clip,
    "two_sided": two_sided,
    "spo": spo,
    "drpo": drpo,
    "drpo_unweighted": drpo_unweighted,
    "mask_drpo": mask_drpo,
    "band_tv": partial(band, divergence="tv"),
    "band_kl": partial(band, divergence="kl"),
    "band_chi2": partial(band, divergence="chi2"),
    "cispo": cispo,
}


def objective(name: str) -> Callable[[Sample], Tensor]:
    """The objective of a named rule; what has no formula of its own is masked importance sampling."""
    return _NAMED.get(name, masked)
