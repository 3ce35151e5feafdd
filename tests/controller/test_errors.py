"""Every error of the room survives pickling: errors cross process borders."""

from __future__ import annotations

import pickle

import pytest

from controller import errors

KINDS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.ControllerError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_survives_pickling_and_is_in_the_tree(kind: type[errors.ControllerError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("one line", 7)))
    assert type(copy) is kind
    assert copy.args == ("one line", 7)
    assert kind is errors.ControllerError or kind.__name__ in (errors.__doc__ or "")
