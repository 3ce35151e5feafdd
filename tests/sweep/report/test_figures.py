from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import combinations

import pytest
from PIL import Image

from sweep.report.cells import MINUS
from sweep.report.figures import coverage, over_time, pareto, registry
from sweep.report.figures.labels import _overlap
from sweep.report.figures.pareto import Point, frontier
from sweep.report.figures.registry import FIGURES, drawn, run_timeline, save, telling_run
from sweep.report.figures.style import styled
from sweep.report.load import load
from sweep.report.memo import Intervals
from sweep.report.tables.context import Context, by_size
from sweep.store.paths import RunStore
from tests.synthetic.run import STATIC, Model, SyntheticRun
from tests.synthetic.write import write_store


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """PNGs of few pixels take little time."""
    monkeypatch.setattr(registry, "DPI", 60)


def test_all_figures_of_the_papers_sweep_are_drawn_as_svg_and_png(paper_context, tmp_path):
    names = []
    for name, caption, figure in drawn(paper_context):
        names.append(name)
        assert caption
        svg, png = save(figure, tmp_path, name)
        assert svg.read_text().startswith("<?xml")
        with Image.open(png) as image:
            assert min(image.size) > 150
            assert len(image.convert("L").getcolors(65_536)) > 10
    assert names == [*FIGURES, "timeline"]


def test_figures_do_not_depend_on_the_users_matplotlib_settings(paper_context):
    import matplotlib

    with matplotlib.rc_context({"font.size": 30}):
        with styled():
            assert matplotlib.rcParams["font.size"] == 9
        assert matplotlib.rcParams["font.size"] == 30


def test_bars_of_figure_1_are_the_medians_in_order_of_size(paper_context):
    with styled():
        figure = FIGURES["figure1"].draw(paper_context)
    axes = figure.axes[0]
    names = [label.get_text().split("\n")[0] for label in axes.get_xticklabels()]
    assert names[0] == "Granite 4.0 350M"
    assert names[-1] == "Qwen3.5 35B-A3B"
    assert len(names) == 15
    heights = {
        name: patch.get_height()
        for name, patch in zip(names, axes.containers, strict=True)
        for patch in patch
    }
    runs = paper_context.llm.filter(title="Qwen3 0.6B")
    assert heights["Qwen3 0.6B"] == pytest.approx(runs["reduction_pct"].median())
    hatched = {n for n, c in zip(names, axes.containers, strict=True) if c[0].get_hatch()}
    assert hatched == {"GPT-OSS 20B", "Gemma 4 26B-A4B", "Qwen3 30B-A3B", "Qwen3.5 35B-A3B"}


def test_figure_3_averages_over_runs(paper_context):
    runs = paper_context.static("error_on").filter(algorithm="leastconn")
    middles, mean, low, high = over_time.window_means(paper_context, runs)
    assert middles[0] == 5
    assert len(middles) == 60
    first = []
    for run_id in runs["run_id"]:
        windows = paper_context.loaded.aggregates[run_id].windows
        first.append(windows["sum_us"][0] / windows["answered"][0] / 1000)
    assert mean[0] == pytest.approx(sum(first) / len(first))
    assert (low[0] < mean[0]) and (mean[0] < high[0])


def test_figure_5_by_fleet_size_is_table_13_without_rules(demo_store):
    context = Context(load(RunStore(demo_store)), Intervals())
    assert context.rules.height == context.llm.height == 1
    left = FIGURES["figure5"].draw(context).axes[0]
    assert [t.get_text() for t in left.texts] == [f"{context.llm['steps'].sum()}\nsteps"]


def test_the_frontier_holds_what_nothing_beats():
    made = [
        Point(t, x, y, "", "")
        for t, x, y in (
            ("a", 10, 98),
            ("b", 20, 99),
            ("c", 21, 98.5),
            ("d", 30, 99.5),
            ("e", 10, 97),
        )
    ]
    assert [p.title for p in frontier(made)] == ["a", "b", "d"]


def test_doing_nothing_competes_in_figure_4(paper_context):
    titles = [p.title for p in pareto.points(paper_context)]
    assert len(titles) == 16
    assert titles[-1] == "Static, error-on"


def test_the_inset_of_figure_4_hides_no_point(paper_context):
    with styled():
        figure = pareto.draw(paper_context)
    axes = figure.axes[0]
    for inset in axes.child_axes:
        box = inset.get_window_extent()
        for point in pareto.points(paper_context):
            assert not box.contains(*axes.transData.transform((point.x, point.y))), point.title


def test_no_label_of_figure_4_lies_on_the_frontier(paper_context):
    with styled():
        figure = pareto.draw(paper_context)
    figure.canvas.draw()
    made = pareto.points(paper_context)
    for axes in (figure.axes[0], *figure.axes[0].child_axes):
        line = axes.transData.transform(pareto._along(frontier(made)))
        for label in axes.texts:
            # The text alone: its background may touch the line.
            box = label.get_window_extent().padded(-1)
            assert not any(box.contains(x, y) for x, y in line), label.get_text()


def test_labels_of_figure_4_do_not_cover_one_another(paper_context):
    with styled():
        figure = pareto.draw(paper_context)
    figure.canvas.draw()
    for axes in (figure.axes[0], *figure.axes[0].child_axes):
        boxes = [(label.get_text(), label.get_window_extent()) for label in axes.texts]
        for (one, a), (other, b) in combinations(boxes, 2):
            assert _overlap(a, b) < 0.2, (one, other)


def test_families_and_architectures_differ_without_colour(paper_context):
    shapes: dict[str, set] = {}
    for point, family in zip(
        pareto.points(paper_context),
        [g["family"][0] for g in by_size(paper_context.deciding).partition_by("title")],
        strict=False,
    ):
        shapes.setdefault(family, set()).add(point.marker)
    assert all(len(markers) == 1 for markers in shapes.values())
    assert len(set.union(*shapes.values())) == len(shapes) == 5
    fills = {p.title: p.fill for p in pareto.points(paper_context)}
    assert [fills[t] for t in ("Qwen3 4B", "Qwen3 30B-A3B", "Gemma 4 E2B")] == [
        *("full", "left", "bottom")
    ]


def test_overlaps_of_labels_are_measured():
    from matplotlib.transforms import Bbox

    box = Bbox.from_bounds(0, 0, 10, 10)
    assert _overlap(box, Bbox.from_bounds(5, 0, 10, 10)) == pytest.approx(0.5)
    assert _overlap(box, Bbox.from_bounds(20, 0, 10, 10)) == 0


def test_coverage_knows_what_is_missing_failed_and_invalid(demo_store):
    invocation = {"runs": ["static-error_on_leastconn_n3_s42", "qwen3-4b-think_leastconn_n5_s42"]}
    (demo_store / "sweep.yaml").write_text(json.dumps({"invocations": [invocation]}))
    record = {"run_id": "qwen3-4b-nothink_leastconn_n5_s42", "outcome": "policy", "reason": "x"}
    (demo_store / "failures.jsonl").write_text(json.dumps(record) + "\n")
    path = demo_store / "runs" / "smollm2-135m-none_leastconn_n3_s42" / "summary.json"
    path.write_text(path.read_text().replace('"valid": true', '"valid": false'))
    context = Context(load(RunStore(demo_store)), Intervals())
    found = coverage.grid(context)
    small, large = (3, "leastconn", 42), (5, "leastconn", 42)
    assert found.columns == [small, large]
    assert found.states == {
        ("Static error-on", small): "complete",
        ("Static error-off", small): "complete",
        ("Threshold rule", small): "complete",
        ("smollm2-135m-none", small): "invalid",
        ("qwen3-4b-think", large): "missing",
        ("qwen3-4b-nothink", large): "failed",
    }
    axes = coverage.draw(context).axes[0]
    signs = {t.get_text(): t.get_position() for t in axes.texts}
    rows = [t.get_text() for t in axes.get_yticklabels()]
    for sign, row, column in (
        ("!", "smollm2-135m-none", 0),
        ("\N{MIDDLE DOT}", "qwen3-4b-think", 1),
        ("x", "qwen3-4b-nothink", 1),
    ):
        assert signs[sign] == (column + 0.5, rows.index(row) + 0.5)


MYSTERY = Model("mystery", "Mystery 7B", "llm")


@pytest.fixture(scope="module")
def odd_context(tmp_path_factory):
    """A model without size or family, a model that multiplies errors, N outside the paper."""
    static = SyntheticRun(STATIC, "error_on", scale=4, completion_tokens=0, http_5xx=30)
    healthy = replace(static, scale=12, mode="error_off", error_mode="error_off", http_5xx=0)
    mystery = SyntheticRun(MYSTERY, "weird", scale=4, http_5xx=20, trips={5: ("weight_clamp",)})
    worse = SyntheticRun(
        Model("qwen3-4b", "Qwen3 4B", "llm", "Qwen3", 4.0, 4.0, "dense"),
        "think",
        scale=4,
        http_5xx=600,
    )
    root = write_store(tmp_path_factory.mktemp("odd"), [static, healthy, mystery, worse])
    path = root / "runs" / mystery.run_id / "steps.jsonl"
    first, *rest = path.read_text().splitlines()
    failed = json.loads(first) | {"error": "timeout"}
    path.write_text("\n".join([json.dumps(failed), *rest]) + "\n")
    return Context(load(RunStore(root)), Intervals())


def legend(axes):
    return [t.get_text() for t in axes.get_legend().get_texts()]


def test_unknown_sizes_and_families_are_not_taken_for_small_ones_or_rules(odd_context):
    figures = {name: figure for name, _, figure in drawn(odd_context)}
    right = figures["figure6"].axes[1]
    assert legend(right) == ["≥3B active (1 run)", "size unknown (1 run)"]
    assert legend(figures["figure1"].axes[0]) == ["Qwen3", "no family"]
    assert "no family" in legend(figures["figure4"].axes[0])


def test_what_runs_off_an_axis_is_given_in_numbers(odd_context):
    figures = {name: figure for name, _, figure in drawn(odd_context)}
    for axes in (figures["figure1"].axes[0], figures["figure6"].axes[1]):
        assert f"{MINUS}1,900%" in [t.get_text() for t in axes.texts]


def test_legends_name_all_that_is_drawn_wherever_it_is(odd_context):
    figures = {name: figure for name, _, figure in drawn(odd_context)}
    assert sorted(legend(figures["figure2"].axes[0])) == [
        "floor by construction",
        "no error",
        "with error",
    ]
    timeline = run_timeline(odd_context.loaded, "mystery-weird_leastconn_n4_s42")
    assert legend(timeline.axes[-1]) == ["failed"]


def test_a_store_with_nothing_to_draw_says_so(tmp_path):
    run = SyntheticRun(STATIC, "error_on", completion_tokens=0, requests=500, http_5xx=9)
    context = Context(load(RunStore(write_store(tmp_path, [run]))), Intervals())
    figures = {name: figure for name, _, figure in drawn(context)}
    assert "timeline" not in figures
    assert telling_run(context) is None
    texts = [t.get_text() for t in figures["figure1"].axes[0].texts]
    assert texts == ["No run has a reduction: it takes a matched static error-on run with errors."]


def test_a_timeline_that_can_not_be_drawn_says_why(demo_store):
    context = Context(load(RunStore(demo_store)), Intervals())
    run_id = telling_run(context)
    (demo_store / "runs" / run_id / "counters.parquet").unlink()
    figures = {name: figure for name, _, figure in drawn(context)}
    (text,) = figures["timeline"].axes[0].texts
    assert text.get_text().startswith(f"No timeline of {run_id}: ")


def test_the_layout_of_small_stores_does_not_collapse(demo_store, tmp_path):
    context = Context(load(RunStore(demo_store)), Intervals())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, _, figure in drawn(context):
            save(figure, tmp_path, name)
