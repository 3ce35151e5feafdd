"""What a plan needs is asked for before anything is started."""

from __future__ import annotations

import pytest

import testbed.factory
from sweep import preflight
from sweep.errors import RequestError
from tests.sweep.runs import point


def test_the_largest_fleet_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        testbed.factory, "check", lambda kind, spec: [f"{kind}: {spec.fleet.backends} backends"]
    )
    small, large = (point("model=static", "mode=error_on", f"scale={scale}") for scale in (3, 9))
    for plan in ([small, large], [large, small]):
        with pytest.raises(RequestError, match=r"this can't run here: local: 9 backends$"):
            preflight.require_everything(plan)
