"""What queueing alone predicts for the paper's fleet: a closed loop of virtual users, no processes.

    python bench/closed_loop.py

Prints latencies at N=3 with and without the faulty server, for numbers of threads per backend and
for how long a thread stays busy after its answer. docs/fidelity.md draws its conclusions from it;
`bench/fidelity.py` measures the same on real programs.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from itertools import count

import numpy as np

PROFILES = {1: (7, 2), 2: (9, 4), 3: (9, 3)}
"""Instance to base and jitter in ms (Table 1; instance 3 has ⌊3/3⌋ ms on top)."""

SLEEP_MS = (5.0, 50.0)
VUS = 30


@dataclass
class Server:
    """One backend: `threads` requests at a time, the others wait in order."""

    busy: int = 0
    connections: int = 0
    waiting: deque[tuple[int, float]] = field(default_factory=deque)


def simulate(
    threads: int,
    linger_ms: float,
    instances: tuple[int, ...],
    algorithm: str = "leastconn",
    inside_ms: float = 1.0,
    outside_ms: float = 0.7,
    duration_s: float = 120.0,
) -> tuple[float, float, float, float]:
    """Mean, p50, p95 and p99 of latency in ms.

    `inside_ms` is what a request costs in its thread beyond the drawn delay (± 30%), `outside_ms`
    what it costs on the way there and back.
    """
    rng = random.Random(1)
    servers = {instance: Server() for instance in instances}
    order = count()
    turn = count()
    events: list[tuple[float, int, str, int, int, float]] = []
    latencies: list[float] = []

    def push(time: float, kind: str, user: int, instance: int = 0, began: float = 0.0) -> None:
        heapq.heappush(events, (time, next(order), kind, user, instance, began))

    def serve(time: float, instance: int, user: int, began: float) -> None:
        servers[instance].busy += 1
        base, jitter = PROFILES[instance]
        took = base + rng.randint(0, jitter) + inside_ms * rng.uniform(0.7, 1.3)
        push(time + took, "answered", user, instance, began)

    for user in range(VUS):
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


def main() -> None:
    """Print the table."""
    columns = " mean   p50   p95   p99"
    print(f"threads linger | static leastconn {columns} | drained leastconn {columns} | roundrobin")
    for threads in (3, 4, 5):
        for linger_ms in (0.0, 1.0, 1.5, 2.0, 2.5, 3.0):
            cells = []
            for instances, algorithm in (
                ((1, 2, 3), "leastconn"),
                ((1, 3), "leastconn"),
                ((1, 3), "roundrobin"),
            ):
                values = simulate(threads, linger_ms, instances, algorithm)
                cells.append(" ".join(f"{value:5.1f}" for value in values))
            print(f"{threads:7} {linger_ms:6.1f} | {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
