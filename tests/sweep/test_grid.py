"""The grid of the paper, counted and named, from the real configuration."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from sweep.config import specs
from sweep.config.fingerprint import differences, fingerprint, identity
from sweep.config.settings import sweep_settings
from sweep.config.specs import check_point, fleet_spec, load_spec, shuffle_seed
from sweep.errors import RequestError
from sweep.grid import compose_grid
from testbed.config.slots import shuffled_slots

CONF = Path(__file__).resolve().parents[2] / "conf"
MODELS = sorted(path.stem for path in CONF.glob("model/*.yaml"))


def composer(overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return compose("config", overrides=overrides)


def jobs(*arguments: str):
    parsed = OverridesParser.create().parse_overrides(list(arguments))
    (batch,) = BasicSweeper.split_arguments(parsed, None)
    return batch


@pytest.fixture(scope="module")
def paper_grid():
    return compose_grid(
        jobs(
            "algorithm=leastconn,roundrobin",
            f"model={','.join(MODELS)}",
            "scale=3,5,7,9",
        ),
        composer,
    )


def test_the_papers_grid_has_exactly_its_240_runs(paper_grid):
    """128 + 24 + 48 + 24 + 16 (paper, §3.5)."""
    assert len(paper_grid.points) == 240
    assert len({p.run_id for p in paper_grid.points}) == 240
    assert len({p.fingerprint for p in paper_grid.points}) == 240
    families = Counter(p.config["model"].get("family") or "static" for p in paper_grid.points)
    assert families["Qwen3"] + families["Qwen3.5"] == 128
    assert families["Granite"] + families["Granite 4.0"] == 24
    assert families["Gemma 4"] == 48
    assert families["GPT-OSS"] == 24
    assert families["static"] == 16
    assert paper_grid.left_out == 0


def test_every_scale_and_algorithm_has_sixty_and_onehundredtwenty_runs(paper_grid):
    assert Counter(p.scale for p in paper_grid.points) == {3: 60, 5: 60, 7: 60, 9: 60}
    assert Counter(p.algorithm for p in paper_grid.points) == {
        "leastconn": 120,
        "roundrobin": 120,
    }


def test_no_slot_is_the_faulty_one_by_habit(paper_grid):
    """A policy that drains always the same slot must not be right in every run (paper, §3.4)."""
    runs = 56
    for scale in (3, 5, 7, 9):
        points = [p for p in paper_grid.points if p.scale == scale and p.policy == "llm"]
        faulty = Counter()
        for p in points:
            slots = shuffled_slots(scale, specs.testbed_spec(p).shuffle_seed)
            faulty.update(slot for slot, instance in slots.items() if instance % 3 == 2)
        expected = runs * fleet_spec(points[0]).faulty_count() / scale
        assert len(points) == runs and len(faulty) == scale
        # Pinned by the ids: none is far from its share.
        assert 0.4 * expected < min(faulty.values()) <= max(faulty.values()) < 1.6 * expected
    again = point_of("model=qwen3-4b", "mode=think", "scale=9", "controller.settle_s=1")
    order = shuffled_slots(9, shuffle_seed(again))
    assert list(order.values()) == [4, 6, 3, 2, 1, 5, 8, 7, 9]


def test_run_ids_are_readable(paper_grid):
    ids = {p.run_id for p in paper_grid.points}
    assert "qwen3-4b-think_leastconn_n5_s42" in ids
    assert "static-error_off_roundrobin_n9_s42" in ids
    assert "gpt-oss-20b-high_leastconn_n3_s42" in ids


def test_an_axis_set_on_a_copy_is_what_hydra_would_have_composed():
    """The shortcut of `compose_grid` against plain Hydra, axis by axis."""
    overrides = ["model=qwen3-4b", "scale=7", "algorithm=roundrobin", "mode=nothink", "seed=7"]
    (point,) = compose_grid([overrides], composer).points
    plain = OmegaConf.to_container(composer(overrides), resolve=True)
    assert point.config == plain


def test_an_explicit_mode_keeps_what_exists_and_counts_the_rest():
    grid = compose_grid(jobs("model=qwen3-4b,granite-4.0-1b", "scale=3,5", "mode=think"), composer)
    assert [p.run_id for p in grid.points] == [
        "qwen3-4b-think_leastconn_n3_s42",
        "qwen3-4b-think_leastconn_n5_s42",
    ]
    assert grid.left_out == 2


def test_an_unknown_mode_is_refused_with_the_known_ones():
    with pytest.raises(RequestError, match=r"unknown mode thnik: .* nothink, think"):
        compose_grid(jobs("model=qwen3-4b", "mode=thnik"), composer)


def test_an_empty_grid_is_refused():
    with pytest.raises(RequestError, match="the grid is empty"):
        compose_grid([], composer)


@pytest.mark.parametrize("scale", ["0", "-1", "2.5", "true", "three", "null"])
def test_a_fleet_needs_at_least_one_backend(scale):
    with pytest.raises(RequestError, match="scale="):
        compose_grid(jobs("model=static", f"scale={scale}"), composer)


def test_one_id_for_two_configurations_is_refused_with_the_key():
    with pytest.raises(RequestError, match=r"duration_s: 60 -> 120"):
        compose_grid(jobs("model=static", "mode=error_on", "duration_s=60,120"), composer)


def test_one_name_for_two_models_is_refused():
    """Their modes, and so their ids, differ; the server of the first would answer for both."""
    runs = (
        ["model=qwen3-4b", "mode=think"],
        ["model=qwen3-4b", "mode=nothink", "model.weights.quant=Q4_K_M"],
    )
    with pytest.raises(RequestError, match=r"both of model\.name=qwen3-4b and differ in model"):
        compose_grid(runs, composer)
    runs[1][2] = "serving.threads=2"
    with pytest.raises(RequestError, match=r"model\.name=qwen3-4b and differ in serving"):
        compose_grid(runs, composer)


def test_the_same_point_twice_is_one_run():
    assert (
        len(compose_grid(jobs("model=static", "mode=error_on", "scale=3,3"), composer).points) == 1
    )


def grid_of(*overrides):
    return compose_grid([list(overrides)], composer)


def point_of(*overrides):
    (point,) = compose_grid([list(overrides)], composer).points
    return point


@pytest.mark.parametrize(
    "override",
    [
        "sweep.dir=elsewhere",
        "sweep.testbeds=3",
        "sweep.max_attempts=7",
        "testbed.start_timeout_s=99",
        "serving.load_timeout_s=99",
        "serving.program=/somewhere/llama-server",
        "controller.haproxy_timeout_s=9",
        "controller.telemetry.timeout_s=9",
    ],
)
def test_run_time_knobs_leave_the_fingerprint_alone(override):
    base = point_of("model=qwen3-4b", "mode=think")
    assert point_of("model=qwen3-4b", "mode=think", override).fingerprint == base.fingerprint


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("duration_s=60", "duration_s"),
        ("controller.interval_s=5", "controller.interval_s"),
        ("controller.decision_deadline_s=5", "controller.decision_deadline_s"),
        ("controller.observation.history_actions=5", "controller.observation.history_actions"),
        ("fleet.threads=9", "fleet.threads"),
        ("load.telemetry=file", "load.telemetry"),
        ("serving.context_per_slot=4096", "serving.context_per_slot"),
        ("model.modes.think.sampling.temperature=0.1", "model.modes.think.sampling.temperature"),
    ],
)
def test_what_can_change_a_result_changes_the_fingerprint_and_is_named(override, key):
    base, other = (
        point_of("model=qwen3-4b", "mode=think"),
        point_of("model=qwen3-4b", "mode=think", override),
    )
    assert other.fingerprint != base.fingerprint
    (line,) = differences(base.config, other.config)
    assert line.startswith(f"{key}: ")


def test_another_modes_sampling_is_not_part_of_a_run():
    base = point_of("model=qwen3-4b", "mode=think")
    other = point_of("model=qwen3-4b", "mode=think", "model.modes.nothink.sampling.temperature=0.1")
    assert other.fingerprint == base.fingerprint


def test_a_static_run_does_not_depend_on_how_models_are_served():
    base = point_of("model=static", "mode=error_on")
    assert not [k for k in identity(base.config) if k.startswith(("serving.", "prompt."))]
    for override in ("controller.decision_deadline_s=5", "controller.observation.trend_points=9"):
        other = point_of("model=static", "mode=error_on", override)
        assert other.fingerprint == base.fingerprint, override
    other = point_of("model=static", "mode=error_on", "controller.settle_s=1")
    assert other.fingerprint != base.fingerprint


def test_the_fingerprint_of_a_small_config_is_pinned():
    """A golden value: whoever changes the rules must raise `VERSION`."""
    config = {"scale": 3, "mode": "none", "model": {"policy": "static", "modes": {"none": {}}}}
    assert fingerprint(config) == "3-39977569b12d40d4"


def test_a_ramp_fits_every_duration_and_fleet():
    point = point_of("model=static", "mode=error_on", "load=ramp", "scale=5", "duration_s=100")
    load = load_spec(point)
    assert load.stages == ((30.0, 1000.0), (40.0, 1250.0), (30.0, 250.0))
    assert (load.start_rate_rps, load.vus, load.duration_s) == (250.0, 100, 100.0)


def test_every_grid_point_of_the_paper_makes_specifications(paper_grid):
    for point in paper_grid.points:
        check_point(point)
    faulty = {p.scale: fleet_spec(p).faulty_count() for p in paper_grid.points if p.mode == "think"}
    assert faulty == {3: 1, 5: 2, 7: 2, 9: 3}
    off = [p for p in paper_grid.points if fleet_spec(p).error_mode == "error_off"]
    assert {(p.model, p.mode) for p in off} == {("static", "error_off")}
    assert len(off) == 8
    assert {load_spec(p).vus for p in paper_grid.points} == {30, 50, 70, 90}


# --- wrong values, told before anything is started --------------------------------------------


@pytest.mark.parametrize(
    "override",
    [
        *("duration_s=inf", "duration_s=nan", "load.sleep_max_ms=nan", "seed=4294967295"),
        *("load.profile=x", "load.vus_per_backend=1.5", "load.sleep_min_ms=100"),
        *("fleet.threads=1.5", "fleet.profiles=[]", "fleet.profiles=x", "fleet.profiles=[1]"),
        *("testbed.kind=x", "testbed.programs=x", "testbed.programs.k6=[1]"),
        *("load.sleep_min_ms=x", "load.sleep_max_ms=true", "load.request_timeout_s=x"),
        *("model.name=a/b", "model.modes=null"),
    ],
)
def test_wrong_values_are_refused_with_their_key(override):
    with pytest.raises(RequestError) as refused:
        for point in grid_of("model=static", override).points:
            check_point(point)
    key = override.partition("=")[0]
    assert key in str(refused.value) or override.endswith(("inf", "nan"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("profile", "wrong"),
    [
        ("{base_ms:x,jitter_ms:1,error_rate:0}", "fleet.profiles[1].base_ms=x"),
        ("{base_ms:1.5,jitter_ms:1,error_rate:0}", "fleet.profiles[1].base_ms=1.5"),
        ("{base_ms:1,jitter_ms:-1,error_rate:0}", "fleet.profiles[1].jitter_ms=-1"),
        ("{base_ms:1,jitter_ms:1,error_rate:5}", "fleet.profiles[1].error_rate=5"),
        ("{base_ms:1,jitter_ms:1}", "fleet.profiles[1].error_rate is missing"),
        ("{base_ms:1,jitter_ms:1,error_rate:0,x:1}", "fleet.profiles[1].x is unknown"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_key(profile, wrong):
    right = "{base_ms:8,jitter_ms:3,error_rate:0.5}"
    with pytest.raises(RequestError) as refused:
        check_point(grid_of("model=static", f"fleet.profiles=[{right},{profile}]").points[0])
    assert wrong in str(refused.value)


@pytest.mark.parametrize("stages", ["x", "[1]", "[[1]]", "[[1,2,3]]", "[[1,x]]", "[[0.5,1]]"])
def test_wrong_stages_are_refused(stages):
    with pytest.raises(RequestError, match=r"load\.stages"):
        check_point(grid_of("model=static", "load=ramp", f"load.stages={stages}").points[0])


def test_a_program_that_no_testbed_has_is_refused():
    with pytest.raises(RequestError, match=r"testbed\.programs\.k7: there are haproxy"):
        check_point(grid_of("model=static", "+testbed.programs.k7=/opt/k7").points[0])


@pytest.mark.parametrize("axis", ["sweep.dir=a,b", "sweep.testbeds=1,2"])
def test_where_a_sweep_goes_is_no_axis(axis):
    """Else the runs of the second value would silently not be made: they have the same ids."""
    with pytest.raises(RequestError, match=r"sweep\.\* can't be an axis"):
        compose_grid(jobs("model=static", axis), composer)


def test_an_llm_needs_a_system_prompt():
    with pytest.raises(RequestError, match=r"prompt\.system"):
        check_point(point_of("model=qwen3-4b", "mode=think", "prompt.system=null"))


@pytest.mark.parametrize(
    "override",
    [
        *("sweep.dir=null", "sweep.dir=''", "sweep.name=null", "sweep.name=[a]"),
        *("sweep.dry_run=maybe", "sweep.dashboard=1", "sweep.testbeds=true"),
        *("sweep.testbeds=0", "sweep.max_attempts=1.5", "sweep.min_free_disk_mib=x"),
        *("sweep.min_rate_ratio=null", "sweep.max_load_cpu=-1", "sweep.run_timeout_s=0"),
        *("sweep.run_timeout_s=nan", "+sweep.testbed=2"),
    ],
)
def test_wrong_settings_of_a_sweep_are_refused_with_their_key(override):
    with pytest.raises(RequestError, match=override.strip("+").partition("=")[0]):
        sweep_settings(grid_of("model=static", override).points)


def test_settings_of_a_sweep():
    settings = sweep_settings(grid_of("model=static", "sweep.name=2024").points)
    assert (settings.name, settings.dir) == ("2024", Path("outputs/2024"))
    assert (settings.testbeds, settings.run_timeout_s, settings.dry_run) == (1, None, False)


@pytest.mark.parametrize("stages", ["null", "[]", "[[0.5,100]]"])
def test_a_ramp_needs_stages_that_fill_the_run(stages):
    point = point_of("model=static", "mode=error_on", "load=ramp", f"load.stages={stages}")
    with pytest.raises(RequestError, match=r"load\.stages"):
        check_point(point)
