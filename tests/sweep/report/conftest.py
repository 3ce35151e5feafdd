"""Run stores that the report's tests read; none of them changes one that it shares."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.report.load import Loaded, load
from sweep.report.memo import Intervals
from sweep.report.tables.context import Context
from sweep.store.paths import RunStore
from tests.synthetic.demo import demo_runs
from tests.synthetic.paper import paper_runs
from tests.synthetic.write import write_store


@pytest.fixture(scope="session")
def paper_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """240 runs built to the paper's counts, at a five-hundredth of its requests."""
    root = tmp_path_factory.mktemp("paper") / "paper"
    yield write_store(root, paper_runs(0.002))
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def paper_loaded(paper_store: Path) -> Loaded:
    return load(RunStore(paper_store))


@pytest.fixture(scope="session")
def paper_context(paper_loaded: Loaded) -> Context:
    return Context(paper_loaded, Intervals())


@pytest.fixture(scope="session")
def demo_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("demo") / "demo", demo_runs(requests=3_000))


@pytest.fixture
def demo_store(demo_template: Path, tmp_path: Path) -> Path:
    """The four runs of the demo, in a folder that the test may spoil."""
    return Path(shutil.copytree(demo_template, tmp_path / "demo"))
