"""What a plan needs is asked for before anything is started."""

from __future__ import annotations

import pytest

import testbed.factory
from sweep import preflight
from sweep.errors import RequestError
from testbed.api import TestbedSpec
from tests.sweep.runs import point


def test_the_largest_fleet_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        testbed.factory, "check", lambda kind, spec: [f"{kind}: {spec.fleet.backends} backends"]
    )
    small, large = (point("model=static", "mode=error_on", f"scale={scale}") for scale in (3, 9))
    for plan in ([small, large], [large, small]):
        with pytest.raises(RequestError, match=r"this can't run here: local: 9 backends$"):
            preflight.require_everything(plan)


def test_every_configuration_of_testbeds_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def images(kind: str, spec: TestbedSpec) -> list[str]:
        return [f"no {spec.options['images']} images for {spec.fleet.backends} backends"]

    monkeypatch.setattr(testbed.factory, "check", images)
    plan = [
        point("testbed=docker", "mode=error_on", f"testbed.images={images}", f"scale={scale}")
        for images, scale in (("debian", 9), ("official", 3), ("official", 5), ("debian", 7))
    ]
    with pytest.raises(RequestError) as refused:
        preflight.require_everything(plan)
    assert str(refused.value) == (
        "this can't run here: no official images for 5 backends; no debian images for 9 backends"
    )
