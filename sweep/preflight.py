"""Everything that the runs of a plan need, asked for at once, before anything is started."""

from __future__ import annotations

import json
from collections.abc import Sequence

import testbed.factory
from serving.errors import ServingError
from serving.program import find_llama_server
from serving.weights import is_present
from sweep.config.specs import serving_plan, testbed_kind, testbed_spec
from sweep.errors import RequestError
from sweep.grid import RunPoint


def require_everything(points: Sequence[RunPoint]) -> None:
    """Raise `RequestError` naming all that is missing, each with the way to get it."""
    problems = [*_testbed_problems(points), *_serving_problems(points)]
    if problems:
        raise RequestError("this can't run here: " + "; ".join(dict.fromkeys(problems)))


def _testbed_problems(points: Sequence[RunPoint]) -> list[str]:
    # What the largest fleet needs (memory, addresses) is enough for all that are made alike.
    largest = {_made_of(point): point for point in sorted(points, key=lambda p: p.scale)}
    return [
        problem
        for point in largest.values()
        for problem in testbed.factory.check(testbed_kind(point), testbed_spec(point))
    ]


def _made_of(point: RunPoint) -> str:
    """What decides which programs or images a run needs; the same text for runs made alike."""
    testbed, telemetry = point.config["testbed"], point.config["load"]["telemetry"]
    return json.dumps([testbed, telemetry], sort_keys=True)


def _serving_problems(points: Sequence[RunPoint]) -> list[str]:
    problems = []
    for point in {p.model: p for p in points if p.needs_server}.values():
        plan = serving_plan(point)
        if plan.config["endpoint"] != "llama_server":
            continue
        try:
            find_llama_server(plan.config.get("program"))
        except ServingError as error:
            problems.append(str(error))
        if not is_present(plan.model.weights):
            problems.append(f"weights of {point.model} (python -m serving pull {point.model})")
    return problems
