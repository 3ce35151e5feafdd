"""Tables 5 to 14 of the paper, in the units in which it prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: rows by label, cells by column key."""

    source: str
    rows: Mapping[str, Mapping[str, float]]


def _table(
    source: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]
) -> PaperTable:
    return PaperTable(
        source,
        {
            label: {c: v for c, v in zip(columns, values, strict=True) if v is not None}
            for label, values in rows.items()
        },
    )


TABLES: Mapping[str, PaperTable] = {
    # Floors are the paper's printed ones, (N_slow / N) x 5%, in percent.
    "5": _table(
        "Table 5, §3.3",
        ("users", "faulty", "floor"),
        {
            "3": (30, 1, 1.7),
            "5": (50, 2, 2.0),
            "7": (70, 2, 1.4),
            "9": (90, 3, 1.7),
        },
    ),
    "6": _table(
        "Table 6, §5.3",
        ("n", "precision", "recall", "f1", "exact"),
        {
            "Granite 4.0 350M": (8, None, 0.000, 0.000, 0.000),
            "Qwen3 0.6B": (16, 0.917, 0.344, 0.500, 0.188),
            "Qwen3.5 0.8B": (16, 0.690, 0.625, 0.656, 0.250),
            "Granite 4.0 1B": (8, 0.692, 0.562, 0.621, 0.000),
            "Qwen3 1.7B": (16, 1.000, 0.500, 0.667, 0.500),
            "Qwen3.5 2B": (16, 0.714, 0.938, 0.811, 0.375),
            "Granite 4.0 Micro": (8, 0.667, 1.000, 0.800, 0.500),
            "Qwen3 4B": (16, 1.000, 0.969, 0.984, 0.938),
            "Qwen3.5 4B": (16, 1.000, 1.000, 1.000, 1.000),
            "Gemma 4 E2B": (16, 1.000, 0.969, 0.984, 0.938),
            "Gemma 4 E4B": (16, 1.000, 1.000, 1.000, 1.000),
            "GPT-OSS 20B": (24, 1.000, 0.854, 0.921, 0.875),
            "Gemma 4 26B-A4B": (16, 1.000, 0.969, 0.984, 0.938),
            "Qwen3 30B-A3B": (16, 1.000, 0.781, 0.877, 0.688),
            "Qwen3.5 35B-A3B": (16, 1.000, 0.938, 0.968, 0.938),
        },
    ),
    "7": _table(
        "Table 7, §5.3",
        ("nothink", "think"),
        {
            "Gemma 4": (90.9, 86.0),
            "GPT-OSS": (None, 86.5),
            "Granite": (70.0, None),
            "Qwen3": (68.0, 88.8),
            "Qwen3.5": (85.1, 85.4),
        },
    ),
    "8": _table(
        "Table 8, §5.4",
        ("runs", "requests", "mean_ms", "p50_ms", "p95_ms", "p99_ms"),
        {
            "healthy": (8, 7_223_335, 11.767, 11.5, 15.1, 16.6),
            "uncontrolled": (8, 7_033_886, 12.001, 11.9, 15.6, 17.7),
            "sub": (96, 79_432_077, 15.148, 12.1, 38.3, 47.9),
            "supra": (128, 103_238_823, 16.505, 12.1, 40.4, 49.0),
        },
    ),
    "9": _table(
        "Table 9, §5.4",
        ("sub", "supra", "uncontrolled"),
        {
            "3 leastconn": (33.0, 26.1, 15.3),
            "3 roundrobin": (37.6, 27.6, 15.5),
            "5 leastconn": (38.7, 39.0, 15.4),
            "5 roundrobin": (39.2, 40.6, 15.6),
            "7 leastconn": (31.2, 35.7, 15.1),
            "7 roundrobin": (38.2, 36.7, 15.1),
            "9 leastconn": (30.9, 45.3, 16.0),
            "9 roundrobin": (45.0, 47.2, 16.0),
        },
    ),
    "10": _table(
        "Table 10, §5.5.1",
        ("precision", "recall", "f1", "exact", "fired_pct"),
        {
            "3": (0.877, 0.893, 0.885, 0.786, 0.56),
            "5": (0.873, 0.795, 0.832, 0.589, 1.79),
            "7": (0.912, 0.830, 0.869, 0.696, 1.82),
            "9": (0.961, 0.732, 0.831, 0.589, 2.38),
        },
    ),
    "11": _table(
        "Table 11, §5.5.2",
        ("time_to_action_s", "time_to_resolution_s"),
        {
            "3 leastconn": (79.0, 79.0),
            "3 roundrobin": (59.0, 59.0),
            "5 leastconn": (84.0, 152.0),
            "5 roundrobin": (107.0, 178.0),
            "7 leastconn": (63.5, 171.0),
            "7 roundrobin": (64.0, 170.0),
            "9 leastconn": (108.0, 288.5),
            "9 roundrobin": (116.5, 240.0),
        },
    ),
    "12": _table(
        "Table 12, §5.5.3",
        ("leastconn", "roundrobin"),
        {
            "3": (89.6, 93.2),
            "5": (85.2, 84.1),
            "7": (86.4, 89.9),
            "9": (77.4, 76.9),
        },
    ),
    "13": _table(
        "Table 13, §5.5.4",
        ("steps", "fired_drain_cap", "fired_action_cap", "fired_weight_clamp", "fired_pct"),
        {
            "3": (3029, 0, 0, 17, 0.56),
            "5": (2964, 16, 6, 31, 1.79),
            "7": (2960, 20, 3, 31, 1.82),
            "9": (2936, 26, 3, 41, 2.38),
        },
    ),
    "14": _table(
        "Table 14, §5.6.2",
        (
            "completion_per_step",
            "completion_tokens",
            "cadence_s",
            "steps",
            "over_budget",
            "reduction_pct",
            "cost_eff",
        ),
        {
            "nothink": (157, 18_480, 10.0, 60.0, 0, 86.6, 762),
            "think": (1_546, 76_618, 12.0, 50.0, 73, 86.3, 131),
            "GPT-OSS low": (166, 10_183, 10.0, 60.0, 0, 88.5, 1_214),
            "GPT-OSS medium": (689, 45_206, 10.0, 60.0, 0, 88.1, 280),
            "GPT-OSS high": (3_428, 110_954, 18.0, 27.5, 100, 74.0, 93),
            "Granite none": (87, 5_187, 10.0, 60.0, 0, 70.0, 1_138),
        },
    ),
}
