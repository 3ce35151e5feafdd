"""Prometheus and HAProxy, made into one snapshot per step (paper, §4.3)."""

from controller.telemetry.prometheus import RangeResults, TelemetryConfig
from controller.telemetry.snapshot import build_snapshot
from controller.telemetry.source import HAProxyTelemetry

__all__ = ["HAProxyTelemetry", "RangeResults", "TelemetryConfig", "build_snapshot"]
