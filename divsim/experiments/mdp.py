"""What does each rule cost, and what does it buy? Decision processes, learned from stale minibatches."""

from functools import partial

from divsim.tabular.environments import PROCESSES

from .learning_figures import figures
from .learning_runs import PRESETS as _PRESETS
from .learning_runs import check as _check
from .learning_runs import compute, rows, tiles
from .runs import Experiment

EXPERIMENT = Experiment("mdp", __name__, tiles, compute, rows, figures)
PRESETS = _PRESETS["mdp"]
check = partial(_check, worlds=PROCESSES)

__all__ = ["EXPERIMENT", "PRESETS", "check"]
