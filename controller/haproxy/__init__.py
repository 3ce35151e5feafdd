"""HAProxy's surfaces: the runtime socket (reads, all writes) and the Data Plane API (discovery)."""

from controller.haproxy.dataplane import DataPlane
from controller.haproxy.fleet import Fleet
from controller.haproxy.parse import ProcessInfo, ServerStat
from controller.haproxy.socket import RuntimeSocket

__all__ = ["DataPlane", "Fleet", "ProcessInfo", "RuntimeSocket", "ServerStat"]
