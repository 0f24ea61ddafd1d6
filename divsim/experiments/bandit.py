"""What does each rule cost, and what does it buy? Softmax bandits, learned from stale minibatches."""

from .learning_figures import figures
from .learning_runs import PRESETS as _PRESETS
from .learning_runs import check, compute, rows, tiles
from .runs import Experiment

EXPERIMENT = Experiment("bandit", __name__, tiles, compute, rows, figures)
PRESETS = _PRESETS["bandit"]

__all__ = ["EXPERIMENT", "PRESETS", "check"]
