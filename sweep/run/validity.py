"""Whether a complete run may be compared with others: pure judgement of plain numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Limits past which the load generator, or HAProxy, was saturated (pitfall 12)."""

    min_rate_ratio: float
    max_load_cpu: float


@dataclass(frozen=True)
class Evidence:
    """What is known of a run's load and slots when it has ended."""

    achieved_rate_rps: float
    expected_rate_rps: float | None
    """Closed-loop expectation; None where there is none (arrival-rate load)."""
    load_cpu_s: float
    load_duration_s: float
    load_cpus: int
    """Cores that the load generator may use."""
    haproxy_cpu_s: float
    dropped_iterations: int
    transport_errors: int
    requests: int
    slots_changed: bool
    faulty_found: int
    faulty_expected: int


def invalid_reasons(evidence: Evidence, bounds: Bounds) -> list[str]:
    """Why the run says nothing about its policy; empty when it does."""
    reasons = []
    expected = evidence.expected_rate_rps
    if expected and evidence.achieved_rate_rps < bounds.min_rate_ratio * expected:
        reasons.append(
            f"load generator too slow: {evidence.achieved_rate_rps:.1f} requests/s, "
            f"closed-loop expectation {expected:.1f}"
        )
    cpu = evidence.load_cpu_s / max(1e-9, evidence.load_duration_s * evidence.load_cpus)
    if cpu > bounds.max_load_cpu:
        reasons.append(f"load generator saturated: {cpu:.0%} of {evidence.load_cpus} cores")
    # HAProxy has one thread, so a core is all that it can use.
    proxy_cpu = evidence.haproxy_cpu_s / max(1e-9, evidence.load_duration_s)
    if proxy_cpu > bounds.max_load_cpu:
        reasons.append(f"HAProxy saturated: {proxy_cpu:.0%} of its one thread")
    if evidence.dropped_iterations:
        reasons.append(f"load generator dropped {evidence.dropped_iterations} iterations")
    if evidence.slots_changed:
        reasons.append("a slot changed its address during the run")
    return reasons


def warnings(evidence: Evidence) -> list[str]:
    """What a reader should know although the run counts."""
    notes = []
    if evidence.faulty_found != evidence.faulty_expected:
        notes.append(
            f"{evidence.faulty_found} slots returned 5xx, expected {evidence.faulty_expected}"
        )
    if evidence.transport_errors:
        notes.append(
            f"{evidence.transport_errors} of {evidence.requests} requests got no HTTP answer"
        )
    return notes
