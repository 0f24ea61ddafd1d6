r"""T7, top-K: what can be known when the engine returns only the K likeliest tokens of mu.

Read in this order. `coarse.py`: every estimator is one number on the tail, and which number is the exact
derivative of what. `sampled_alone.py` and `resolution.py`: the ends, K = 0 and K = V, and the impossibility
at K = 0. `tail_bias.py`: how wrong the estimates are. `tail_interval.py` and `certificate.py`: an interval
for the change that is proven, and how to break it. `tail_mass.py`: what masses alone say.
`tail_divergence.py`: an interval for the divergence, and what coarse cells hide.
"""

from . import (
    certificate,
    coarse,
    resolution,
    sampled_alone,
    tail_bias,
    tail_divergence,
    tail_interval,
    tail_mass,
)

THEOREMS = (
    *coarse.THEOREMS,
    sampled_alone.no_top_k,
    *resolution.THEOREMS,
    sampled_alone.impossibility,
    *tail_bias.THEOREMS,
    *tail_interval.THEOREMS,
    *certificate.THEOREMS,
    *tail_mass.THEOREMS,
    *tail_divergence.THEOREMS,
)
