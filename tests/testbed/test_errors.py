"""Errors cross process boundaries."""

from __future__ import annotations

import pickle

import pytest

from testbed import errors

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.TestbedError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind: type[errors.TestbedError]) -> None:
    error = pickle.loads(pickle.dumps(kind("haproxy ended (exit code 1)")))
    assert type(error) is kind
    assert str(error) == "haproxy ended (exit code 1)"


def test_the_tree_is_drawn_in_full() -> None:
    assert errors.__doc__ is not None
    assert len(KINDS) > 6
    assert all(kind.__name__ in errors.__doc__ for kind in KINDS)
