"""The tasks that ship with divsim: sorting, reversing, adding, and a bandit of one token.

Each can be checked by a machine and answered by no trick. What is left out: tasks of other libraries.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .task import FIRST, SEP, Ints, Task, Tokens


@dataclass(frozen=True)
class Sort:
    """Sort the prompt's values; with aliases each value has several names, which are all as good.

    Attributes:
      values: how many values there are.
      length: of a prompt.
      aliases: names of each value, used with probability proportional to 1 / rank^2.

    >>> task = Sort(values=10, length=3)
    >>> task.is_right([8, 3, 5, SEP], [3, 5, 8]), task.is_right([8, 3, 5, SEP], [3, 5])
    (True, False)
    """

    values: int = 128
    length: int = 8
    aliases: int = 1

    ends = True

    @property
    def vocab_size(self) -> int:
        """V."""
        return FIRST + self.values * self.aliases

    @property
    def longest_prompt(self) -> int:
        """Values and the end of the prompt."""
        return self.length + 1

    @property
    def longest_answer(self) -> int:
        """As many values."""
        return self.length

    def prompt(self, rng: np.random.Generator) -> Tokens:
        """Values, uniform and independent."""
        return [*self._named(rng.integers(self.values, size=self.length), rng), SEP]

    def answer(self, prompt: Tokens, rng: np.random.Generator) -> Tokens:
        """The values in order, under random names."""
        return self._named(np.sort(self._value(prompt[:-1])), rng)

    def is_right(self, prompt: Tokens, answer: Tokens) -> bool:
        """The same values, ascending."""
        if any(token < FIRST for token in answer):
            return False
        return bool(np.array_equal(self._value(answer), np.sort(self._value(prompt[:-1]))))

    def _value(self, tokens: Tokens) -> Ints:
        return (np.asarray(tokens, dtype=np.int64) - FIRST) // self.aliases

    def _named(self, values: Ints, rng: np.random.Generator) -> Tokens:
        weight = 1.0 / np.arange(1, self.aliases + 1) ** 2
        alias = rng.choice(self.aliases, size=len(values), p=weight / weight.sum()) if self.aliases > 1 else 0
        return [int(token) for token in FIRST + values * self.aliases + alias]


@dataclass(frozen=True)
class Reverse:
    """Say the prompt's values backwards.

    >>> Reverse(values=10, length=3).is_right([8, 3, 5, SEP], [5, 3, 8])
    True
    """

    values: int = 512
    length: int = 8

    ends = True

    @property
    def vocab_size(self) -> int:
        """V."""
        return FIRST + self.values

    @property
    def longest_prompt(self) -> int:
        """Values and the end of the prompt."""
        return self.length + 1

    @property
    def longest_answer(self) -> int:
        """As many values."""
        return self.length

    def prompt(self, rng: np.random.Generator) -> Tokens:
        """Values, uniform and independent."""
        return [*map(int, FIRST + rng.integers(self.values, size=self.length)), SEP]

    def answer(self, prompt: Tokens, rng: np.random.Generator) -> Tokens:
        """The only right answer."""
        return list(prompt[-2::-1])

    def is_right(self, prompt: Tokens, answer: Tokens) -> bool:
        """The values backwards, and nothing else."""
        return list(answer) == list(prompt[-2::-1])


@dataclass(frozen=True)
class Add:
    """Add two numbers, digit by digit from the left; prompts and answers differ in length.

    Attributes:
      digits: at most so many in each number.

    >>> task = Add()
    >>> task.is_right([*task.spelled(17), task.plus, *task.spelled(5), SEP], task.spelled(22))
    True
    """

    digits: int = 3

    ends = True
    plus = FIRST + 10

    @property
    def vocab_size(self) -> int:
        """Ten digits and a plus."""
        return FIRST + 11

    @property
    def longest_prompt(self) -> int:
        """Two numbers, plus, and the end of the prompt."""
        return 2 * self.digits + 2

    @property
    def longest_answer(self) -> int:
        """A carry more."""
        return self.digits + 1

    @staticmethod
    def spelled(number: int) -> Tokens:
        """The digits of a number as tokens."""
        return [FIRST + int(digit) for digit in str(number)]

    def prompt(self, rng: np.random.Generator) -> Tokens:
        """Two numbers whose numbers of digits are uniform."""
        left, right = (int(rng.integers(10 ** int(rng.integers(1, self.digits + 1)))) for _ in range(2))
        return [*self.spelled(left), self.plus, *self.spelled(right), SEP]

    def answer(self, prompt: Tokens, rng: np.random.Generator) -> Tokens:
        """The only right answer."""
        at = list(prompt).index(self.plus)
        left, right = (
            int("".join(str(token - FIRST) for token in part)) for part in (prompt[:at], prompt[at + 1 : -1])
        )
        return self.spelled(left + right)

    def is_right(self, prompt: Tokens, answer: Tokens) -> bool:
        """The sum, without leading zeros."""
        return list(answer) == list(self.answer(prompt, np.random.default_rng(0)))


@dataclass(frozen=True)
class Bandit:
    """One token, one answer: the bridge to exact bandits. A quarter of the arms of each prompt is right.

    >>> Bandit(prompts=4, arms=8).is_right([FIRST + 1, SEP], [FIRST + 3])
    True
    """

    prompts: int = 64
    arms: int = 32

    ends = False

    @property
    def vocab_size(self) -> int:
        """V: prompts and arms share their symbols."""
        return FIRST + max(self.prompts, self.arms)

    @property
    def longest_prompt(self) -> int:
        """One symbol and the end of the prompt."""
        return 2

    @property
    def longest_answer(self) -> int:
        """One arm."""
        return 1

    def prompt(self, rng: np.random.Generator) -> Tokens:
        """A uniform symbol."""
        return [FIRST + int(rng.integers(self.prompts)), SEP]

    def answer(self, prompt: Tokens, rng: np.random.Generator) -> Tokens:
        """A uniform right arm."""
        right = [arm for arm in range(self.arms) if self.is_right(prompt, [FIRST + arm])]
        return [FIRST + int(rng.choice(right))]

    def is_right(self, prompt: Tokens, answer: Tokens) -> bool:
        """Arms of one residue class are right."""
        return len(answer) == 1 and answer[0] >= FIRST and (answer[0] - FIRST + prompt[0] - FIRST) % 4 == 0


TASKS: dict[str, Callable[..., Task]] = {"sort": Sort, "reverse": Reverse, "add": Add, "bandit": Bandit}
"""By name; settings are keywords."""
