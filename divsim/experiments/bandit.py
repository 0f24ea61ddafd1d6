"""What does each rule cost, and what does it buy? Softmax bandits, learned from stale minibatches."""

from functools import partial

from divsim.tabular.environments import BANDITS

from .learning_figures import figures
from .learning_runs import PRESETS as _PRESETS
from .learning_runs import check as _check
from .learning_runs import compute, rows, tiles
from .runs import Experiment

EXPERIMENT = Experiment("bandit", __name__, tiles, compute, rows, figures)
PRESETS = _PRESETS["bandit"]
check = partial(_check, worlds=BANDITS)

__all__ = ["EXPERIMENT", "PRESETS", "check"]
