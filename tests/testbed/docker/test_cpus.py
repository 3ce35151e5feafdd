"""CPU sets are disjoint within a testbed and between testbeds."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.docker.cpus import CpuLease, cores_wanted, plan


def test_too_few_cores_are_shared_by_all() -> None:
    assert plan([0, 1, 2], 3) is None
    assert plan([], 3) is None


def test_four_cores_are_one_each() -> None:
    cpus = plan([4, 5, 6, 7], 3)
    assert cpus is not None
    assert (cpus.of("k6"), cpus.of("haproxy"), cpus.of("side"), cpus.of("backends")) == (
        *("4", "5", "6", "7"),
    )


def test_what_is_wanted_grows_with_the_fleet() -> None:
    assert [cores_wanted(n) for n in (1, 3, 5, 7, 9, 30)] == [4, 4, 5, 7, 7, 17]
    cpus = plan(range(16), 9)
    assert cpus is not None
    assert cpus.of("k6") == "0,1" and cpus.count("k6") == 2
    assert cpus.of("backends") == "4,5,6"


@given(st.sets(st.integers(0, 255), min_size=4, max_size=64), st.integers(1, 64))
def test_sets_are_disjoint_and_not_empty(available: set[int], backends: int) -> None:
    cpus = plan(sorted(available), backends)
    assert cpus is not None
    sets = [cpus.k6, cpus.haproxy, cpus.backends, cpus.side]
    flat = [cpu for part in sets for cpu in part]
    assert all(sets)
    assert len(flat) == len(set(flat)) <= cores_wanted(backends)
    assert set(flat) <= available


def test_leases_do_not_overlap_and_come_back(tmp_path: Path) -> None:
    one, two, three = CpuLease(tmp_path), CpuLease(tmp_path), CpuLease(tmp_path)
    assert one.take([0, 1, 2, 3, 4], 2) == [0, 1]
    assert two.take([0, 1, 2, 3, 4], 2) == [2, 3]
    assert three.take([0, 1, 2, 3, 4], 2) == [4]
    one.release()
    assert three.take([0, 1, 2, 3, 4], 1) == [0]


def _take_and_die(folder: Path) -> None:
    CpuLease(folder).take([0, 1], 2)
    os._exit(9)


def test_a_dead_process_holds_no_lease(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=_take_and_die, args=(tmp_path,))
    child.start()
    child.join(30)
    assert child.exitcode == 9
    assert CpuLease(tmp_path).take([0, 1], 2) == [0, 1]


@pytest.mark.parametrize("component", ["prometheus", "redis", "dataplane"])
def test_the_rest_shares_the_side_set(component: str) -> None:
    cpus = plan(range(8), 3)
    assert cpus is not None
    assert cpus.of(component) == cpus.of("side")
