from __future__ import annotations

import pytest

from sweep.metrics.frames import steps_frame
from sweep.metrics.spending import cadence_s, completion_per_step, over_budget, tokens


def step(number, started, completion=0, turns=0, plan=()):
    return {
        "step": number,
        "started_s": started,
        "raw_plan": [{"kind": k, "server": "api-1"} for k in plan],
        "usage": {
            "prompt_tokens": 900 * turns,
            "completion_tokens": completion,
            "total_tokens": 900 * turns + completion,
            "cached_tokens": 100 * turns,
            "turns": turns,
        },
    }


STEPS = steps_frame(
    [
        step(2, 24.0, 300, 2, ("drain", "no_op")),
        step(0, 0.0, 100, 1),
        step(1, 10.0),  # the model did not answer
        step(3, 36.0, 250, 2, ("drain", "enable")),
    ]
)


def test_cadence_is_the_median_time_between_starts():
    assert cadence_s(STEPS) == 12.0
    assert cadence_s(STEPS[:1]) is None
    assert cadence_s(steps_frame([])) is None


@pytest.mark.parametrize(
    ("cadence", "over"), [(10.0, False), (10.05, False), (10.2, True), (18.0, True), (None, None)]
)
def test_jitter_of_the_timer_is_not_over_budget(cadence, over):
    assert over_budget(cadence, 10.0) is over


def test_tokens_are_summed_and_no_op_is_no_action():
    used = tokens(STEPS)
    assert (used.prompt, used.completion, used.total) == (4500, 650, 5150)
    assert (used.cached, used.turns, used.actions) == (500, 5, 3)


def test_a_step_without_an_answer_has_no_tokens_rather_than_zero():
    assert completion_per_step(STEPS) == [100, 300, 250]
