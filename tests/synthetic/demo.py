"""The four runs of the demo: both static arms, the threshold rule, one LLM that never acts."""

from __future__ import annotations

from dataclasses import replace

from tests.synthetic.run import STATIC, THRESHOLD, Model, SyntheticRun

SMOLLM = Model("smollm2-135m", "SmolLM2 135M", "llm", "SmolLM2", 0.135, 0.135, "dense")


def demo_runs(duration_s: float = 60.0, requests: int = 45_000) -> list[SyntheticRun]:
    """N=3, leastconn; the rule drains the faulty server at step 1."""
    base = SyntheticRun(
        STATIC,
        "error_on",
        duration_s=duration_s,
        testbed="local",
        requests=requests,
        http_5xx=round(requests / 60),
        completion_tokens=0,
    )
    rule = replace(base, model=THRESHOLD, mode="none", http_5xx=round(requests / 400))
    return [
        base,
        replace(base, mode="error_off", error_mode="error_off", http_5xx=0, base_ms=11.3),
        replace(rule, toggles={rule.faulty[0]: (1,)}),
        replace(
            base,
            model=SMOLLM,
            mode="none",
            http_5xx=round(requests / 58),
            completion_tokens=40,
        ),
    ]
