from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from sweep.report import notebook

NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"


def execute(name: str, monkeypatch: pytest.MonkeyPatch, store: Path, run: str = "") -> str:
    """All text that the notebook's cells gave, after running it from top to bottom."""
    monkeypatch.setenv("DRAINBENCH_STORE", str(store))
    monkeypatch.setenv("DRAINBENCH_RUN", run)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": NOTEBOOKS}}
    ).execute()
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output["output_type"] != "error"
            data = output.get("data", {})
            texts += [output.get("text", ""), data.get("text/html", ""), data.get("text/plain", "")]
            texts.append("<figure>" if "image/svg+xml" in data else "")
    return "\n".join("".join(t) for t in texts)


def test_the_story_runs_on_the_papers_sweep(paper_store, monkeypatch):
    text = execute("story", monkeypatch, paper_store)
    assert "240 runs" in text
    for number in (5, 6, 7, 8, 9, 10, 11, 12, 13, 14):
        assert f"Table {number}." in text
    assert text.count("<figure>") == 7
    assert "think - nothink" in text


def test_the_story_runs_on_a_store_with_hardly_anything(demo_store, monkeypatch):
    text = execute("story", monkeypatch, demo_store)
    assert "4 runs" in text
    assert "the store has no model with both modes" in text


def test_the_replay_shows_the_decisions_of_a_run(demo_store, monkeypatch):
    text = execute("replay", monkeypatch, demo_store, "threshold-none_leastconn_n3_s42")
    assert "wanted drain" in text
    assert "now drain" in text
    assert "<figure>" in text


def test_a_store_is_found_from_the_checkout_as_from_the_notebooks(
    demo_store, tmp_path, monkeypatch
):
    here = tmp_path / "notebooks"
    here.mkdir()
    (tmp_path / "store").symlink_to(demo_store)
    monkeypatch.setattr(notebook, "_CHECKOUT", tmp_path)
    monkeypatch.chdir(here)
    for path in ("store", "../store"):
        monkeypatch.setenv("DRAINBENCH_STORE", path)
        assert notebook.open_store("nowhere").runs.height == 4


@pytest.mark.parametrize("name", ["story", "replay"])
def test_notebooks_are_kept_without_outputs(name):
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
