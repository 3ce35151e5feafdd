"""From Hydra's job overrides to the runs that they mean (paper, §3.5).

Composing one configuration takes Hydra some 50 ms, so that only what really differs is composed:
the four axes are plain scalars that no other part of the composition depends on, and are set on
a copy instead. Modes depend on the model and are expanded here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from omegaconf import DictConfig, OmegaConf

from sweep.config.fingerprint import differences, fingerprint
from sweep.errors import RequestError

MAX_SEED = 2**32 - 1
"""llama-server takes 32 bits, and the largest value as a wish for a random one."""

_IN_RUN_ID = re.compile(r"\w[\w.+-]*")

AXES = ("scale", "algorithm", "mode", "seed")


@dataclass(frozen=True)
class RunPoint:
    """One run of the grid: its axes, its identity and its whole resolved configuration."""

    run_id: str
    model: str
    mode: str
    algorithm: str
    scale: int
    seed: int
    policy: str
    fingerprint: str
    config: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def needs_server(self) -> bool:
        """Whether the run leases a model server."""
        return self.policy == "llm"


@dataclass(frozen=True)
class Grid:
    """All runs that were asked for, in order, and how many asked-for combinations don't exist."""

    points: tuple[RunPoint, ...]
    left_out: int = 0


def run_id(model: str, mode: str, algorithm: str, scale: int, seed: int) -> str:
    """The readable id of a run, such as `qwen3-4b-think_leastconn_n5_s42`."""
    return f"{model}-{mode}_{algorithm}_n{scale}_s{seed}"


def compose_grid(
    job_overrides: Sequence[Sequence[str]],
    compose: Callable[[list[str]], DictConfig],
    on_progress: Callable[[int, int], None] | None = None,
) -> Grid:
    """Compose every job and expand its modes.

    `compose` turns a list of overrides into a Hydra config. Raises `RequestError` for a grid of
    zero runs, an unknown mode, or two grid points of the same id and different configuration.
    """
    if not job_overrides:
        raise RequestError(
            "the grid is empty: an axis has no values (a glob that matches no model?)"
        )
    parser = OverridesParser.create()
    composed: dict[tuple[str, ...], DictConfig] = {}
    points: dict[str, RunPoint] = {}
    modes_seen: set[str] = set()
    modes_asked: set[str] = set()
    left_out = 0
    for done, overrides in enumerate(job_overrides):
        rest, axes = _split_axes(parser, overrides)
        key = tuple(rest)
        if key not in composed:
            composed[key] = _without_hydra(compose(list(rest)))
        if on_progress is not None:
            on_progress(done + 1, len(job_overrides))
        config = composed[key].copy()
        for axis, value in axes.items():
            OmegaConf.update(config, axis, value)
        for mode, resolved in _expand_modes(config, modes_seen, modes_asked):
            if mode is None:
                left_out += 1
            else:
                _add(points, make_point(resolved))
    unknown = modes_asked - modes_seen
    if unknown:
        raise RequestError(
            f"unknown mode {', '.join(sorted(unknown))}: "
            f"the chosen models have {', '.join(sorted(modes_seen))}"
        )
    _require_one_model_a_name(points.values())
    return Grid(tuple(points.values()), left_out)


def _require_one_model_a_name(points: Iterable[RunPoint]) -> None:
    """A server is started by a model's name, and all runs of that name ask it."""
    first: dict[str, RunPoint] = {}
    for point in points:
        if not point.needs_server:
            continue
        known = first.setdefault(point.model, point)
        for group in ("model", "serving"):
            if known.config[group] != point.config[group]:
                raise RequestError(
                    f"{known.run_id} and {point.run_id} are both of model.name={point.model} and "
                    f"differ in {group}: give one another model.name, or sweep them in two run "
                    "stores (sweep.name=…)"
                )


def make_point(config: Mapping[str, Any]) -> RunPoint:
    """The run that one resolved config with a mode means; raises `RequestError`."""
    model = config["model"]
    scale, seed = config["scale"], config["seed"]
    if not isinstance(scale, int) or isinstance(scale, bool) or scale < 1:
        raise RequestError(f"scale={scale}: the fleet needs a whole number of backends, at least 1")
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < MAX_SEED:
        raise RequestError(f"seed={seed}: the seed is a whole number from 0 to {MAX_SEED - 1}")
    for key, part in (("model.name", model.get("name")), ("mode", config["mode"])):
        if not isinstance(part, str) or not _IN_RUN_ID.fullmatch(part):
            raise RequestError(
                f"{key}={part}: it becomes a part of file names, so that only letters, digits "
                "and _ . - + are allowed"
            )
    if config["algorithm"] not in ("leastconn", "roundrobin"):
        raise RequestError(f"algorithm={config['algorithm']}: choose leastconn or roundrobin")
    name = run_id(model["name"], config["mode"], config["algorithm"], scale, seed)
    try:
        digest = fingerprint(config)
    except ValueError as error:  # JSON has no infinity and no NaN
        raise RequestError(f"{name}: a value is inf or nan: a finite number is needed") from error
    return RunPoint(
        run_id=name,
        model=model["name"],
        mode=config["mode"],
        algorithm=config["algorithm"],
        scale=scale,
        seed=seed,
        policy=model["policy"],
        fingerprint=digest,
        config=config,
    )


def _split_axes(
    parser: OverridesParser, overrides: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    rest, axes = [], {}
    for text in overrides:
        override = parser.parse_override(text)
        if override.type == OverrideType.CHANGE and override.key_or_group in AXES:
            axes[override.key_or_group] = override.value()
        else:
            rest.append(text)
    return rest, axes


def _without_hydra(config: DictConfig) -> DictConfig:
    """The part of a composed config that is about runs."""
    return OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])


def _expand_modes(
    config: DictConfig, modes_seen: set[str], modes_asked: set[str]
) -> list[tuple[str | None, dict[str, Any]]]:
    """One resolved config for every mode; (None, {}) for an asked-for mode that isn't there."""
    available = [str(mode) for mode in config.model.get("modes") or ()]
    if not available:
        raise RequestError(f"model {config.model.get('name')} has no modes (model.modes)")
    modes_seen.update(available)
    asked = config.mode
    if asked is None:
        wanted = available
    else:
        modes_asked.add(str(asked))
        if str(asked) not in available:
            return [(None, {})]
        wanted = [str(asked)]
    expanded = []
    for mode in wanted:
        copy = config.copy()
        OmegaConf.update(copy, "mode", mode)
        resolved = OmegaConf.to_container(copy, resolve=True, throw_on_missing=True)
        expanded.append((mode, resolved))
    return expanded


def _add(points: dict[str, RunPoint], point: RunPoint) -> None:
    known = points.setdefault(point.run_id, point)
    if known.config["sweep"] != point.config["sweep"]:
        raise RequestError("sweep.* can't be an axis of the grid: give each key one value")
    if known.fingerprint != point.fingerprint:
        raise RequestError(
            f"two grid points are both called {point.run_id} and differ in "
            f"{'; '.join(differences(known.config, point.config))}: "
            "sweep them in two run stores (sweep.name=…)"
        )
