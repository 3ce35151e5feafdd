"""Executes guarded actions on HAProxy's runtime socket and reads back what is true (paper, §4.3).

A weight set on a drained server is set and the server stays drained: that is what HAProxy does, and
what is read back and recorded. `enable` returns it with that weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.api import Action, ActionResult, ServerStat
from controller.errors import HAProxyAnswer
from controller.haproxy.fleet import Fleet
from controller.haproxy.parse import ServerState
from controller.haproxy.socket import RuntimeSocket

States = Mapping[tuple[str, str], ServerState]


class HAProxyActuator:
    """`controller.api.Actuator` of a real HAProxy.

    `fleet` is what discovery returned: the strings that go into a command come from it, never from
    an action.
    """

    def __init__(self, socket: RuntimeSocket, fleet: Fleet, backend: str) -> None:
        self._socket = socket
        self._fleet = fleet
        self._backend = backend

    def execute(self, actions: Sequence[Action]) -> list[ActionResult]:
        """One result per action that is not a `no_op`. Raises `HAProxyError`."""
        actions = [action for action in actions if action.kind != "no_op"]
        if not actions:
            return []
        results = []
        before = self.states()
        for action in actions:
            message = self._perform(action)
            after = self.states()
            results.append(_result(action, message, before, after))
            before = after
        return results

    def read(self) -> list[ServerStat]:
        """Every server of the backend as HAProxy has it now. Raises `HAProxyError`."""
        return self._socket.server_stats(self._backend)

    def states(self) -> States:
        """What an action can change, of every server; one exchange. Raises `HAProxyError`."""
        return self._socket.server_states(self._backend)

    def _perform(self, action: Action) -> str:
        """HAProxy's words: empty on success."""
        known = self._fleet.find(action.backend, action.server)
        if known is None or known[0] != self._backend:
            return "not a server that discovery returned"
        backend, server = known
        match action.kind:
            case "set_weight" if type(action.weight) is int:
                return self._socket.set_weight(backend, server, action.weight)
            case "drain":
                return self._socket.drain(backend, server)
            case "enable":
                return self._socket.ready(backend, server)
            case _:
                return f"not an action: {str(action.kind)[:40]}"


class ShadowActuator:
    """Reads as `HAProxyActuator` does and changes nothing."""

    MESSAGE = "shadow: not executed"

    def __init__(self, reader: HAProxyActuator) -> None:
        self._reader = reader

    def execute(self, actions: Sequence[Action]) -> list[ActionResult]:
        """A result with `ok=False` for each action that would have been executed."""
        actions = [action for action in actions if action.kind != "no_op"]
        states = self._reader.states() if actions else {}
        return [_result(action, self.MESSAGE, states, states) for action in actions]

    def read(self) -> list[ServerStat]:
        """Every server of the backend as HAProxy has it now. Raises `HAProxyError`."""
        return self._reader.read()


def _result(
    action: Action,
    message: str,
    before: States,
    after: States,
) -> ActionResult:
    key = (action.backend, action.server)
    was, now = before.get(key), after.get(key)
    if not message and now is None:
        raise HAProxyAnswer(f"{action.backend}/{action.server} is gone from show servers state")
    if not message and now is not None:
        message = _untrue(action, now)
    return ActionResult(
        action=action,
        ok=not message,
        message=message,
        weight_before=None if was is None else was.weight,
        weight_after=None if now is None else now.weight,
        admin_state_after=None if now is None else now.admin_state,
    )


def _untrue(action: Action, now: ServerState) -> str:
    """What the read-back contradicts; empty when the action is seen to have worked (pitfall 1)."""
    if action.kind == "set_weight" and now.weight != action.weight:
        return f"accepted, but the weight reads {now.weight}"
    if action.kind == "drain" and now.admin_state == "ready":
        return "accepted, but the server reads ready"
    if action.kind == "enable" and now.admin_state != "ready":
        return f"accepted, but the server reads {now.admin_state}"
    return ""
