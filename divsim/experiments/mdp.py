"""What does each rule cost, and what does it buy? Decision processes, learned from stale minibatches."""

from .learning_figures import figures
from .learning_runs import PRESETS as _PRESETS
from .learning_runs import check, compute, rows, tiles
from .runs import Experiment

EXPERIMENT = Experiment("mdp", __name__, tiles, compute, rows, figures)
PRESETS = _PRESETS["mdp"]

__all__ = ["EXPERIMENT", "PRESETS", "check"]
