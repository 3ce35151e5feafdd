"""What HAProxy says is not believed until it is read back (pitfall: refused in silence)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controller.actuator import HAProxyActuator
from controller.api import Action
from controller.errors import HAProxyAnswer, HAProxyUnavailable
from controller.haproxy import Fleet, RuntimeSocket
from tests.controller.builders import drain, enable, set_weight
from tests.controller.fake_haproxy import STATE, FakeHAProxy

Start = Callable[[Callable[[str], str]], tuple[HAProxyActuator, FakeHAProxy]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[FakeHAProxy] = []

    def make(answer: Callable[[str], str]) -> tuple[HAProxyActuator, FakeHAProxy]:
        fake = FakeHAProxy(answer)
        running.append(fake)
        fleet = Fleet({"be_api": ("api-1",)})
        return HAProxyActuator(RuntimeSocket(fake.address), fleet, "be_api"), fake

    yield make
    for fake in running:
        fake.stop()


def ignoring(admin_state: int) -> Callable[[str], str]:
    state = STATE.format(admin_state=admin_state)
    return lambda command: state if command.startswith("show") else "\n"


@pytest.mark.parametrize(
    ("action", "admin_state", "message"),
    [
        (set_weight("api-1", 50), 0, "accepted, but the weight reads 100"),
        (drain("api-1"), 0, "accepted, but the server reads ready"),
        (enable("api-1"), 8, "accepted, but the server reads drain"),
        (enable("api-1"), 32, "accepted, but the server reads maint"),
    ],
)
def test_an_accepted_command_without_effect_failed(
    start: Start, action: Action, admin_state: int, message: str
) -> None:
    actuator, _ = start(ignoring(admin_state))
    (result,) = actuator.execute([action])
    assert (result.ok, result.message) == (False, message)
    assert (result.weight_before, result.weight_after) == (100, 100)


def test_any_text_is_a_failure_in_haproxys_words(start: Start) -> None:
    words = "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'."
    state = STATE.format(admin_state=0)
    actuator, fake = start(lambda c: state if c.startswith("show") else f"{words}\n\n")
    (result,) = actuator.execute([set_weight("api-1", 50)])
    assert (result.ok, result.message, result.weight_after) == (False, words, 100)
    assert fake.commands == [
        "show servers state be_api",
        "set server be_api/api-1 weight 50",
        "show servers state be_api",
    ]


def test_a_server_that_vanished_is_an_answer_error(start: Start) -> None:
    empty = STATE.format(admin_state=0).replace("api-1", "api-7")
    actuator, _ = start(lambda c: empty if c.startswith("show") else "\n")
    with pytest.raises(HAProxyAnswer, match="be_api/api-1 is gone"):
        actuator.execute([drain("api-1")])


def test_silence_is_no_success(start: Start) -> None:
    state = STATE.format(admin_state=8)
    actuator, _ = start(lambda c: state if c.startswith("show") else "")
    with pytest.raises(HAProxyUnavailable, match="without an answer"):
        actuator.execute([drain("api-1")])


def test_nothing_to_do_asks_nothing(start: Start) -> None:
    actuator, fake = start(ignoring(0))
    assert actuator.execute([Action("no_op")]) == []
    assert fake.commands == []
