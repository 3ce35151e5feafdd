"""JSON values that conform to a schema of the description.

hypothesis-jsonschema does not work with this Hypothesis; the description needs a dozen keywords.
The server validates every value again, with openapi-core, before it is sent.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.dataplane.server import Json

_ANY = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just([]) | st.just({})


def conforming(schema: Json) -> st.SearchStrategy[Any]:
    """Values of a schema: every enumerated one, optional fields present or not, nulls where
    they may be, fields that it does not name where it lets them."""
    kinds = schema.get("type", "object")
    if isinstance(kinds, list):
        return st.one_of(
            *(
                st.none() if kind == "null" else conforming({**schema, "type": kind})
                for kind in kinds
            )
        )
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return {
        "object": _object,
        "array": lambda s: st.lists(conforming(s["items"]) if s["items"] else _ANY, max_size=4),
        "string": _string,
        "integer": lambda s: st.integers(s.get("minimum"), s.get("maximum")),
        "boolean": lambda s: st.booleans(),
    }[kinds](schema)


def _object(schema: Json) -> st.SearchStrategy[Json]:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    known = st.fixed_dictionaries(
        {name: conforming(properties[name]) for name in required},
        optional={n: conforming(s) for n, s in properties.items() if n not in required},
    )
    more = schema.get("additionalProperties", True)
    if more is False:
        return known
    values = _ANY if more is True else conforming(more)
    names = st.text(max_size=8).filter(lambda name: name not in properties)
    extra = st.dictionaries(names, values, max_size=2)
    return st.builds(lambda one, two: {**one, **two}, known, extra)


def _string(schema: Json) -> st.SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return st.datetimes(timezones=st.just(None)).map(lambda t: f"{t.isoformat()}Z")
    if "pattern" in schema:
        # In JSON Schema `$` is the end of the text, in Python also what is before its last newline.
        return st.from_regex(schema["pattern"].removesuffix("$") + r"\Z")
    return st.text(max_size=12)
