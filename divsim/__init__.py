"""divsim: trust-region masks for reinforcement learning of language models, proven, simulated and taught."""

__version__ = "0.1.0"
