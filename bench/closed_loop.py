"""What queueing alone predicts for the paper's fleet: a closed loop of virtual users, no processes.

    python bench/closed_loop.py               latencies at N=3, with and without the faulty server
    python bench/closed_loop.py --table9      p95 of N = 3, 5, 7, 9 with every faulty server drained

Both for numbers of threads per backend and for how long a thread stays busy after its answer.
docs/fidelity.md draws its conclusions from them; `bench/fidelity.py` measures on real programs.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sweep.paper.tables import TABLES
from testbed.cli import PAPER_PROFILES

SLEEP_MS = (5.0, 50.0)
LINGERS_MS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
THREADS = (3, 4, 5, 6)


@dataclass
class Server:
    """One backend: `threads` requests at a time, the others wait in order."""

    busy: int = 0
    connections: int = 0
    waiting: deque[tuple[int, float]] = field(default_factory=deque)


def simulate(
    threads: int,
    linger_ms: float,
    backends: int,
    drained: bool,
    algorithm: str = "leastconn",
    inside_ms: float = 1.0,
    outside_ms: float = 0.7,
    duration_s: float = 120.0,
) -> tuple[float, float, float, float]:
    """Mean, p50, p95 and p99 of latency in ms of `backends` servers and ten times as many users.

    `drained` takes all faulty servers (instance mod 3 = 2) out from the start. `inside_ms` is what
    a request costs in its thread beyond the drawn delay (± 30%), `outside_ms` what it costs on the
    way there and back.
    """
    rng = random.Random(1)
    instances = [i for i in range(1, backends + 1) if not (drained and i % 3 == 2)]
    servers = {instance: Server() for instance in instances}
    order = count()
    turn = count()
    events: list[tuple[float, int, str, int, int, float]] = []
    latencies: list[float] = []

    def push(time: float, kind: str, user: int, instance: int = 0, began: float = 0.0) -> None:
        heapq.heappush(events, (time, next(order), kind, user, instance, began))

    def serve(time: float, instance: int, user: int, began: float) -> None:
        servers[instance].busy += 1
        profile = PAPER_PROFILES[instance % 3]
        delay_ms = profile.base_ms + instance // 3 + rng.randint(0, profile.jitter_ms)
        took = delay_ms + inside_ms * rng.uniform(0.7, 1.3)
        push(time + took, "answered", user, instance, began)

    for user in range(10 * backends):
        push(rng.uniform(0, SLEEP_MS[1]), "sends", user)
    while events:
        time, _, kind, user, instance, began = heapq.heappop(events)
        if time > duration_s * 1000:
            break
        if kind == "sends":
            candidates = list(instances)
            if algorithm == "leastconn":
                least = min(servers[i].connections for i in instances)
                candidates = [i for i in instances if servers[i].connections == least]
            chosen = candidates[next(turn) % len(candidates)]
            servers[chosen].connections += 1
            if servers[chosen].busy < threads:
                serve(time, chosen, user, time)
            else:
                servers[chosen].waiting.append((user, time))
        elif kind == "answered":
            servers[instance].connections -= 1
            latencies.append(time - began + outside_ms)
            push(time + linger_ms, "free", user, instance)
            push(time + outside_ms + rng.uniform(*SLEEP_MS), "sends", user)
        else:
            servers[instance].busy -= 1
            if servers[instance].waiting:
                serve(time, instance, *servers[instance].waiting.popleft())
    values = np.array(latencies)
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    return float(values.mean()), float(p50), float(p95), float(p99)


def latencies_at_three() -> Iterator[str]:
    """Lines: latencies at N=3."""
    columns = " mean   p50   p95   p99"
    yield f"threads linger | static leastconn {columns} | drained leastconn {columns} | roundrobin"
    for threads in THREADS:
        for linger_ms in LINGERS_MS:
            cells = []
            for drained, algorithm in (
                (False, "leastconn"),
                (True, "leastconn"),
                (True, "roundrobin"),
            ):
                values = simulate(threads, linger_ms, 3, drained, algorithm)
                cells.append(" ".join(f"{value:5.1f}" for value in values))
            yield f"{threads:7} {linger_ms:6.1f} | {' | '.join(cells)}"


def table_9() -> Iterator[str]:
    """Lines: the drained p95 of every cell of Table 9, and how far off they are on average.

    `off` is exp(mean |ln(model / paper)|) - 1 over the eight cells of the paper's larger models.
    """
    rows = TABLES["9"].rows
    cells = [(int(n), algorithm) for n, algorithm in (key.split() for key in rows)]
    paper = [rows[f"{n} {algorithm}"]["supra"] for n, algorithm in cells]
    heads = " ".join(f"{n} {algorithm[:5]}" for n, algorithm in cells)
    yield f"threads linger | {heads} |  off"
    for threads in THREADS:
        for linger_ms in LINGERS_MS:
            p95 = [
                simulate(threads, linger_ms, n, True, algorithm, duration_s=60)[2]
                for n, algorithm in cells
            ]
            off = np.mean(np.abs(np.log(np.divide(p95, paper))))
            values = " ".join(f"{value:7.1f}" for value in p95)
            yield f"{threads:7} {linger_ms:6.1f} | {values} | {100 * (math.exp(off) - 1):3.0f}%"
    yield f"          paper | {' '.join(f'{value:7.1f}' for value in paper)} |"


def main() -> None:
    """Print the table asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table9", action="store_true", help="all fleet sizes, p95 only")
    for line in table_9() if parser.parse_args().table9 else latencies_at_three():
        print(line, flush=True)


if __name__ == "__main__":
    main()
