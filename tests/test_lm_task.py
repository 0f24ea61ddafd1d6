"""Tasks: right answers are right, others are not, and the split is fixed."""

import numpy as np
import pytest

pytest.importorskip("torch")

from divsim.lm.task import (
    EOS,
    FIRST,
    SEP,
    draw_prompts,
    is_held_out,
    left_padded,
    noisy_answer,
    reward,
)
from divsim.lm.tasks import TASKS

SETTINGS = {
    "sort": {}, "sort with aliases": {"values": 16, "aliases": 32}, "reverse": {}, "add": {}, "bandit": {},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_are_right_and_changed_ones_are_not(name: str) -> None:
    task = TASKS[name.split()[0]](**SETTINGS[name])
    rng = np.random.default_rng(1)
    for prompt in draw_prompts(task, rng, 200, held_out=False):
        answer = list(task.answer(prompt, rng))
        assert len(prompt) <= task.longest_prompt and len(answer) <= task.longest_answer
        assert all(FIRST <= token < task.vocab_size for token in answer) and prompt[-1] == SEP
        assert reward(task, prompt, [*answer, EOS]) == 1.0
        assert reward(task, prompt, [*answer, EOS, 5, 5]) == 1.0  # what follows the end is not read
        assert reward(task, prompt, answer) == float(not task.ends)
        for wrong in ([], answer[:-1], [*answer, answer[-1]], [SEP, *answer[1:]], [0, *answer[1:]]):
            assert reward(task, prompt, [*wrong, EOS]) == 0.0
            assert reward(task, prompt, wrong) == 0.0


def test_an_alias_is_as_good_as_another() -> None:
    task = TASKS["sort"](values=4, length=2, aliases=3)
    prompt = [FIRST + 7, FIRST + 1, SEP]  # values 2 and 0
    assert all(task.is_right(prompt, [FIRST + a, FIRST + 6 + b]) for a in range(3) for b in range(3))
    assert not task.is_right(prompt, [FIRST + 6, FIRST])


def test_the_split_is_a_tenth_and_the_same_everywhere() -> None:
    rng = np.random.default_rng(0)
    prompts = [TASKS["sort"]().prompt(rng) for _ in range(20_000)]
    share = np.mean([is_held_out(prompt) for prompt in prompts])
    assert abs(share - 0.1) < 4 * (0.09 / 20_000) ** 0.5  # four standard deviations
    assert [n for n in range(3, 40) if is_held_out([n, SEP])] == [33, 36]  # on every machine and version


def test_a_task_without_prompts_on_a_side_is_an_error() -> None:
    class One:
        vocab_size, longest_prompt, longest_answer = 5, 2, 1

        def prompt(self, rng: np.random.Generator) -> list[int]:
            return [3, SEP]

    with pytest.raises(ValueError, match="task has no held-out prompt in 10,000 draws"):
        draw_prompts(One(), np.random.default_rng(0), 1, held_out=not is_held_out([3, SEP]))


def test_noise_replaces_as_many_tokens_as_it_says() -> None:
    task, rng = TASKS["reverse"](), np.random.default_rng(0)
    changed = []
    for prompt in draw_prompts(task, rng, 2000, held_out=False):
        shown = noisy_answer(task, prompt, rng, 0.15)
        assert shown[-1] == EOS and len(shown) == task.longest_answer + 1
        changed.append(np.mean(np.array(shown[:-1]) != np.array(task.answer(prompt, rng))))
    # a replacement from the prompt hits the same token once in eight
    assert np.mean(changed) == pytest.approx(0.15 * (1 - 0.5 / 8), abs=0.01)


def test_prompts_stand_at_the_right() -> None:
    tokens, is_token = left_padded([[5, 2], [7, 8, 2]], 4)
    assert tokens.tolist() == [[0, 0, 5, 2], [0, 7, 8, 2]]
    assert is_token.tolist() == [[False, False, True, True], [False, True, True, True]]
