"""What a verifiable task is: prompts, right answers, and a reward of 0 or 1 that is earned by them alone.

Token 0 is padding, 1 ends an answer, 2 ends a prompt; a task's own symbols begin at 3. A task of one's own is
any object with the members of `Task`. What is left out: the tasks (`tasks.py`), text and its tokenizers.
"""

import functools
import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

PAD, EOS, SEP, FIRST = 0, 1, 2, 3
"""Token ids that all tasks share, and the first one that is a task's own."""

Tokens = Sequence[int]
Ints = NDArray[np.int64]


class Task(Protocol):
    """What a task must offer."""

    @property
    def vocab_size(self) -> int:
        """V, the shared ids included."""

    @property
    def longest_prompt(self) -> int:
        """Tokens."""

    @property
    def longest_answer(self) -> int:
        """Tokens, without the end."""

    @property
    def ends(self) -> bool:
        """Whether an answer must say where it ends; if not, it has `longest_answer` tokens."""

    def prompt(self, rng: np.random.Generator) -> Tokens:
        """A random prompt."""

    def answer(self, prompt: Tokens, rng: np.random.Generator) -> Tokens:
        """A right answer, without the end: what a demonstration shows."""

    def is_right(self, prompt: Tokens, answer: Tokens) -> bool:
        """Whether an answer, whose end was left off, is right."""


HELD_OUT = 0.1
"""Share of all prompts that training never sees."""


def is_held_out(prompt: Tokens) -> bool:
    """Whether a prompt belongs to the held-out ones: by a hash of its tokens, so for ever and everywhere."""
    digest = hashlib.blake2b(np.asarray(prompt, dtype="<i8").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") < HELD_OUT * 2**64


MOST_TRIES = 10_000
"""Prompts in a row on the wrong side of the split: then there are hardly any on the right one."""


def draw_prompts(task: Task, rng: np.random.Generator, count: int, held_out: bool) -> list[Tokens]:
    """Random prompts of one side of the split.

    Errors: ValueError if the task has (nearly) no prompt on that side.

    >>> from .tasks import Sort
    >>> prompts = draw_prompts(Sort(), np.random.default_rng(0), 5, held_out=True)
    >>> all(map(is_held_out, prompts))
    True
    """
    found: list[Tokens] = []
    for _ in range(count):
        for _ in range(MOST_TRIES):
            prompt = task.prompt(rng)
            if is_held_out(prompt) == held_out:
                found.append(prompt)
                break
        else:
            side = "held-out" if held_out else "training"
            raise ValueError(f"task has no {side} prompt in {MOST_TRIES:,} draws; make its prompts longer")
    return found


def reward(task: Task, prompt: Tokens, response: Tokens) -> float:
    """1 if the response ends where it must, and what stands before its first end is right; else 0.

    >>> from .tasks import Reverse
    >>> reward(Reverse(), [7, 9, SEP], [9, 7, EOS, 4]), reward(Reverse(), [7, 9, SEP], [9, 7])
    (1.0, 0.0)
    """
    if EOS not in response:
        return 0.0 if task.ends else float(task.is_right(prompt, response))
    return float(task.is_right(prompt, list(response[: list(response).index(EOS)])))


def longest_response(task: Task) -> int:
    """Tokens of a response, its end included: T."""
    return task.longest_answer + task.ends


def noisy_answer(task: Task, prompt: Tokens, rng: np.random.Generator, noise: float) -> Tokens:
    """A demonstration and its end, if it has one; each token is replaced with probability `noise`.

    Half of the replacements are symbols with probability proportional to 1 / rank, half tokens of the prompt.
    """
    shown = list(task.answer(prompt, rng))
    for place in np.flatnonzero(rng.random(len(shown)) < noise):
        if rng.random() < 0.5:
            reached = _common_first(task.vocab_size - FIRST)
            shown[place] = FIRST + int(np.searchsorted(reached, rng.random(), side="right"))
        else:
            said = [token for token in prompt if token != SEP]
            shown[place] = said[rng.integers(len(said))]
    return [*shown, EOS] if task.ends else shown


@functools.cache
def _common_first(symbols: int) -> NDArray[np.float64]:
    """The running sum of probabilities proportional to 1 / rank."""
    reached = np.cumsum(1.0 / np.arange(1, symbols + 1))
    return np.asarray(reached / reached[-1])


def left_padded(prompts: Sequence[Tokens], width: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Prompts side by side, aligned at their ends: (B, width) tokens, and True where there is one.

    >>> left_padded([[5, 2], [7, 8, 2]], 3)[0].tolist()
    [[0, 5, 2], [7, 8, 2]]
    """
    tokens = np.full((len(prompts), width), PAD, dtype=np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
    return tokens, np.arange(width) >= width - np.array([[len(prompt)] for prompt in prompts])
