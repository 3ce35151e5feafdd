"""A whole sweep of 240 runs, built to the paper's own counts.

True: Tables 5 (floors), 6, 10 and 13, the requests and runs of Table 8, steps and over-budget
share of Table 14, and the pooled numbers of §5.3 (355 / 34 / 93; 149 exact, 83 of them reverted;
68 end correctly; 180 oscillate; 195 act, 168 resolve). Everything else is made up to look right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from sweep import paper
from tests.synthetic.run import STATIC, Model, SyntheticRun

FAULTY = {3: 1, 5: 2, 7: 2, 9: 3}
ALGORITHMS = ("leastconn", "roundrobin")

_MODELS = (
    # title, family, active, total, architecture, modes
    ("Granite 4.0 350M", "Granite", 0.35, 0.35, "dense", ("none",)),
    ("Qwen3 0.6B", "Qwen3", 0.6, 0.6, "dense", ("think", "nothink")),
    ("Qwen3.5 0.8B", "Qwen3.5", 0.8, 0.8, "dense", ("think", "nothink")),
    ("Granite 4.0 1B", "Granite", 1.0, 1.0, "dense", ("none",)),
    ("Qwen3 1.7B", "Qwen3", 1.7, 1.7, "dense", ("think", "nothink")),
    ("Qwen3.5 2B", "Qwen3.5", 2.0, 2.0, "dense", ("think", "nothink")),
    ("Granite 4.0 Micro", "Granite", 3.0, 3.0, "dense", ("none",)),
    ("Qwen3 4B", "Qwen3", 4.0, 4.0, "dense", ("think", "nothink")),
    ("Qwen3.5 4B", "Qwen3.5", 4.0, 4.0, "dense", ("think", "nothink")),
    ("Gemma 4 E2B", "Gemma 4", 2.0, 5.0, "efficient_sparse", ("think", "nothink")),
    ("Gemma 4 E4B", "Gemma 4", 4.0, 8.0, "efficient_sparse", ("think", "nothink")),
    ("GPT-OSS 20B", "GPT-OSS", 3.6, 20.9, "moe", ("low", "medium", "high")),
    ("Gemma 4 26B-A4B", "Gemma 4", 4.0, 26.0, "moe", ("think", "nothink")),
    ("Qwen3 30B-A3B", "Qwen3", 3.0, 30.0, "moe", ("think", "nothink")),
    ("Qwen3.5 35B-A3B", "Qwen3.5", 3.0, 35.0, "moe", ("think", "nothink")),
)
_STEP_TOKENS = {"nothink": 157, "think": 1546, "low": 166, "medium": 689, "high": 3428, "none": 87}


@dataclass
class _Plan:
    """One LLM run while it is being put together."""

    run: SyntheticRun
    tp: int
    fp: int

    @property
    def scale(self) -> int:
        return self.run.scale

    @property
    def full(self) -> bool:
        return self.tp == FAULTY[self.scale]

    @property
    def exact(self) -> bool:
        return self.full and not self.fp


def paper_runs(share: float = 1.0) -> list[SyntheticRun]:
    """All 240 runs; `share` scales the number of requests (1.0: 197 million)."""
    plans = _plans()
    _set_steps(plans)
    _set_toggles(plans)
    _set_trips(plans)
    llm = _with_requests([_with_reduction(p) for p in plans], share)
    return [*_statics(share), *llm]


def _plans() -> list[_Plan]:
    """The 224 LLM runs with their true and false positives."""
    outcomes = _outcomes()
    plans = []
    for title, family, active, total, architecture, modes in _MODELS:
        name = title.lower().replace(" ", "-")
        model = Model(name, title, "llm", family, active, total, architecture)
        for scale in FAULTY:
            points = [(mode, lb) for mode in modes for lb in ALGORITHMS]
            random.Random(f"{title} {scale}").shuffle(points)
            for (mode, lb), (tp, fp) in zip(points, outcomes[title, scale], strict=True):
                run = SyntheticRun(model, mode, lb, scale, completion_tokens=_STEP_TOKENS[mode])
                plans.append(_Plan(run, tp, fp))
    return plans


@lru_cache
def _outcomes() -> dict[tuple[str, int], tuple[tuple[int, int], ...]]:
    """(tp, fp) of every run by model and scale, such that Tables 6 and 10 both hold."""
    kinds = [
        (title, scale, tp, fp)
        for title, *_ in _MODELS
        for scale, faulty in FAULTY.items()
        for tp in range(faulty + 1)
        for fp in range(3)
    ]
    rows: list[list[int]] = []
    totals: list[int] = []

    def add(total: float, weights: Iterator[int]) -> None:
        rows.append(list(weights))
        totals.append(round(total))

    def exact(kind: tuple[str, int, int, int]) -> int:
        return int(kind[2] == FAULTY[kind[1]] and kind[3] == 0)

    for title, *_, modes in _MODELS:
        known = paper.TABLES["6"].rows[title]
        per_scale = 2 * len(modes)
        tp = round(known["recall"] * per_scale * sum(FAULTY.values()))
        fp = tp / known["precision"] - tp if "precision" in known else 0
        for scale in FAULTY:
            add(per_scale, (int(k[:2] == (title, scale)) for k in kinds))
        add(tp, (k[2] * (k[0] == title) for k in kinds))
        add(fp, (k[3] * (k[0] == title) for k in kinds))
        add(known["exact"] * known["n"], (exact(k) * (k[0] == title) for k in kinds))
    for scale, faulty in FAULTY.items():
        known = paper.TABLES["10"].rows[str(scale)]
        tp = round(known["recall"] * 56 * faulty)
        add(tp, (k[2] * (k[1] == scale) for k in kinds))
        add(tp / known["precision"] - tp, (k[3] * (k[1] == scale) for k in kinds))
        add(known["exact"] * 56, (exact(k) * (k[1] == scale) for k in kinds))
    add(195, (int(k[2] > 0) for k in kinds))
    add(168, (int(k[2] == FAULTY[k[1]]) for k in kinds))
    found = milp(
        np.zeros(len(kinds)),
        constraints=LinearConstraint(np.array(rows), totals, totals),
        integrality=np.ones(len(kinds)),
        bounds=Bounds(0, 8),
    )
    assert found.success, found.message
    result: dict[tuple[str, int], tuple[tuple[int, int], ...]] = {}
    for (title, scale, tp, fp), times in zip(kinds, found.x, strict=True):
        result[title, scale] = result.get((title, scale), ()) + ((tp, fp),) * round(times)
    return result


def _set_steps(plans: list[_Plan]) -> None:
    """Completed steps: totals of Table 13, medians and over-budget share of Table 14."""
    for scale in FAULTY:
        total = int(paper.value("13", str(scale), "steps") or 0)
        thinking = [p for p in plans if p.scale == scale and p.run.mode == "think"]
        steps = {id(p): 60 for p in plans if p.scale == scale}
        high = [p for p in plans if p.scale == scale and p.run.mode == "high"]
        steps |= {id(p): s for p, s in zip(high, (27, 28), strict=True)}
        steps |= {id(p): 50 for p in thinking[6:14]}
        slow = thinking[14:]
        left = total - sum(s for key, s in steps.items() if key not in {id(p) for p in slow})
        for index, plan in enumerate(slow):
            steps[id(plan)] = left // len(slow) + (index < left % len(slow))
        for plan in (p for p in plans if p.scale == scale):
            count = steps[id(plan)]
            cadence = 600 / count
            plan.run = replace(plan.run, steps=count, cadence_s=round(cadence, 3))


def _set_toggles(plans: list[_Plan]) -> None:
    """Drains, flips and end states."""
    acting = [p for p in plans if p.tp or p.fp]
    exact = [p for p in acting if p.exact]
    keeps = {id(p) for p in exact[: 149 - 83]}
    # Two runs drained a healthy server too, and let it go again.
    mended = {id(p) for p in [p for p in acting if p.full and p.fp][:2]}
    swinging = {id(p) for p in _spread(acting, 180)}
    for plan in plans:
        ends_right = id(plan) in keeps or id(plan) in mended
        plan.run = replace(plan.run, toggles=_toggles(plan, ends_right, id(plan) in swinging))


def _spread(items: list[_Plan], count: int) -> list[_Plan]:
    """`count` of the items, from all over the list."""
    assert count <= len(items)
    return [items[i * len(items) // count] for i in range(count)]


def _toggles(plan: _Plan, ends_right: bool, swings: bool) -> dict[str, tuple[int, ...]]:
    """Steps at which slots change state; no two slots ever share one."""
    rng = random.Random(plan.run.run_id)
    chosen = [*plan.run.faulty[: plan.tp], *plan.run.healthy[: plan.fp]]
    last = (plan.run.steps or 60) - 1
    stride = max(2, len(chosen))
    start = rng.randint(3, min(9, last // 3))
    toggles = {}
    for index, slot in enumerate(chosen):
        faulty = slot in plan.run.faulty
        # An odd number of toggles leaves the server drained.
        stays = faulty if ends_right else index > 0 and rng.random() < 0.5
        count = 1 if stays else 2
        if swings and index == 0:
            most = (last - start) // stride + 1
            count += 2 * rng.randint(1, min(4, max(1, (most - count) // 2)))
        toggles[slot] = tuple(start + index + stride * i for i in range(count))
    if not ends_right and chosen and _end(toggles) == set(plan.run.faulty):
        steps = toggles[chosen[0]]
        toggles[chosen[0]] = (*steps, steps[-1] + stride)
    return toggles


def _end(toggles: dict[str, tuple[int, ...]]) -> set[str]:
    return {slot for slot, steps in toggles.items() if len(steps) % 2}


def _set_trips(plans: list[_Plan]) -> None:
    """Guardrail firings of Table 13, one rail a step."""
    for scale in FAULTY:
        known = paper.TABLES["13"].rows[str(scale)]
        group = [p for p in plans if p.scale == scale]
        for rail in ("drain_cap", "action_cap", "weight_clamp"):
            left = int(known[f"fired_{rail}"])
            for plan in sorted(
                group, key=lambda p: random.Random(f"{rail}{p.run.run_id}").random()
            ):
                step = _free_step(plan.run, rail) if left else None
                if step is not None:
                    trips = {**plan.run.trips, step: (rail,)}
                    plan.run = replace(plan.run, trips=trips)
                    left -= 1
            assert not left, (scale, rail, left)


def _free_step(run: SyntheticRun, rail: str) -> int | None:
    """A step of the run that can trip `rail`: a drain for the drain cap, a quiet one otherwise."""
    drains = {step for steps in run.toggles.values() for step in steps[::2]}
    busy = {step for steps in run.toggles.values() for step in steps}
    candidates = drains if rail == "drain_cap" else set(range(run.step_count)) - busy
    free = sorted(s for s in candidates if s not in run.trips and s < run.step_count)
    return free[0] if free else None


def _with_reduction(plan: _Plan) -> tuple[SyntheticRun, float]:
    """The run and the share of the floor that it leaves."""
    rng = random.Random(f"reduction {plan.run.run_id}")
    run = plan.run
    if (run.model.title, run.mode, run.algorithm, run.scale) == (
        "Qwen3.5 2B",
        "think",
        "leastconn",
        3,
    ):
        return run, 7.67
    recall = plan.tp / FAULTY[plan.scale]
    left = rng.gauss(0.11, 0.025) if plan.full else 1 - 0.8 * recall + rng.gauss(0, 0.02)
    return run, max(0.03, left)


def _weights(runs: list[SyntheticRun]) -> list[int]:
    return [10 * run.scale for run in runs]


def _shares(total: float, weights: list[int]) -> list[int]:
    """Whole numbers in proportion to `weights` that add up to `total`."""
    edges = np.rint(np.cumsum(weights) / sum(weights) * round(total)).astype(int)
    return np.diff(edges, prepend=0).tolist()


def _floor(run: SyntheticRun) -> float:
    return 0.05 * FAULTY[run.scale] / run.scale


def _with_requests(plans: list[tuple[SyntheticRun, float]], share: float) -> list[SyntheticRun]:
    """Requests of Table 8 over the runs of both LLM arms, and their failures."""
    made = []
    for arm, low, high in (("sub", 0, 3), ("supra", 3, 1000)):
        group = [(r, left) for r, left in plans if low <= (r.model.active_params_b or 0) < high]
        total = (paper.value("8", arm, "requests") or 0) * share
        counts = _shares(total, _weights([run for run, _ in group]))
        for (run, left), requests in zip(group, counts, strict=True):
            failures = round(requests * _floor(run) * left)
            made.append(replace(run, requests=requests, http_5xx=failures))
    return made


def _statics(share: float) -> list[SyntheticRun]:
    made = []
    for mode, arm in (("error_on", "uncontrolled"), ("error_off", "healthy")):
        runs = [
            SyntheticRun(STATIC, mode, lb, scale, error_mode=mode, completion_tokens=0)
            for scale in FAULTY
            for lb in ALGORITHMS
        ]
        counts = _shares((paper.value("8", arm, "requests") or 0) * share, _weights(runs))
        for run, requests in zip(runs, counts, strict=True):
            failures = round(requests * _floor(run)) if mode == "error_on" else 0
            base = 11.5 if mode == "error_on" else 11.3
            made.append(replace(run, requests=requests, http_5xx=failures, base_ms=base))
    return made
