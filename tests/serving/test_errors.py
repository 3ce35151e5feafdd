"""Errors cross process borders: each must survive pickling."""

from __future__ import annotations

import pickle

import pytest

from serving import errors

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ServingError)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_pickling_keeps_type_and_message(kind: type[errors.ServingError]) -> None:
    back = pickle.loads(pickle.dumps(kind("a message")))
    assert type(back) is kind
    assert str(back) == "a message"


def test_the_tree_in_the_docstring_is_complete() -> None:
    assert len(ALL) > 10
    for kind in ALL:
        assert kind.__name__ in (errors.__doc__ or "")
