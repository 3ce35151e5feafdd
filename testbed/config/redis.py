"""Configuration of the Redis protocol server (valkey-server or redis-server)."""

from __future__ import annotations


def render(bind: str, port: int, password: str, directory: str) -> str:
    """redis.conf: nothing is persisted, nothing is evicted: telemetry is drained or refused."""
    return f"""\
bind {bind}
port {port}
requirepass {password}
dir {directory}
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
daemonize no
tcp-backlog 511
"""
