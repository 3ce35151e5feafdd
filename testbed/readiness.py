"""What a testbed has to show before the load may begin."""

from __future__ import annotations

import httpx

from testbed.api import BACKEND_NAME, DataPlaneAddress
from testbed.runtime_socket import servers
from testbed.waiting import Probe


def slots_up(runtime_socket: str, slots: int) -> Probe:
    """All slots are UP, and because a check said so."""

    def check() -> tuple[bool, str]:
        rows = servers(runtime_socket, BACKEND_NAME)
        seen = {slot: f"{row['status']} {row['check_status']}" for slot, row in rows.items()}
        good = [state for state in seen.values() if state.startswith("UP ") and "L7OK" in state]
        return len(good) == slots, ", ".join(f"{slot} {state}" for slot, state in seen.items())

    return Probe(f"all {slots} slots UP", check, "the logs of backends whose slot is not UP")


def instant_value(client: httpx.Client, prometheus_url: str, query: str) -> float | None:
    """Value of an instant query that gives one sample, None where it gives none."""
    answer = client.get(f"{prometheus_url}/api/v1/query", params={"query": query})
    answer.raise_for_status()
    result = answer.json()["data"]["result"]
    return float(result[0]["value"][1]) if result else None


def fleet_seen(client: httpx.Client, prometheus_url: str, slots: int) -> Probe:
    """Prometheus has scraped HAProxy and sees all slots UP; it knows every target, and none fails.

    The backends' own metrics, which no policy reads, may come up to a scrape interval later:
    waiting for each would cost every run the better part of a second.
    """
    query = f'sum(haproxy_server_status{{proxy="{BACKEND_NAME}",state="UP"}})'

    def check() -> tuple[bool, str]:
        answer = client.get(f"{prometheus_url}/api/v1/targets", params={"state": "active"})
        answer.raise_for_status()
        targets = answer.json()["data"]["activeTargets"]
        failing = [f"{t['scrapeUrl']}: {t['lastError']}" for t in targets if t["health"] == "down"]
        seen = instant_value(client, prometheus_url, query) or 0
        words = (
            f"{len(targets)} targets, {seen:.0f} slots UP, {', '.join(failing) or 'no'} failures"
        )
        return len(targets) == slots + 1 and seen == slots and not failing, words

    what = f"Prometheus to have {slots + 1} targets and see {slots} slots UP"
    return Probe(what, check, "a longer testbed.start_timeout_s; Prometheus takes 5 s at least")


# Paths of the API's two major versions.
_DATAPLANE_SERVERS = (
    f"/v3/services/haproxy/runtime/backends/{BACKEND_NAME}/servers",
    f"/v2/services/haproxy/runtime/servers?backend={BACKEND_NAME}",
)


def dataplane_answers(client: httpx.Client, address: DataPlaneAddress, slots: int) -> Probe:
    """The Data Plane API lists all slots of the fleet."""

    def check() -> tuple[bool, str]:
        seen = ""
        for path in _DATAPLANE_SERVERS:
            answer = client.get(address.url + path, auth=(address.user, address.password))
            if answer.status_code == 200:
                # The published description lets a server have no name; such a one is no slot.
                named = sum("name" in row for row in answer.json())
                return named == slots, f"{named} servers listed"
            seen += f"{path.split('/')[1]}: HTTP {answer.status_code} {answer.text[:120]} "
        return False, seen

    return Probe(f"the Data Plane API to list {slots} servers", check, "its log")
