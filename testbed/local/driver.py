"""The local driver: processes of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from testbed.api import Addresses, ComponentUsage, TestbedSpec
from testbed.errors import OutputFailed, TestbedError
from testbed.life import Life
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource
from testbed.local.launch import Processes
from testbed.processes import Child


class LocalTestbed(Life):
    """A `Testbed` of child processes on loopback; see `testbed.api.Testbed` for its methods."""

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        super().__init__(spec)
        self._foreground = foreground
        self._processes = Processes(spec, self._interrupted)

    def _bring_up(self) -> Addresses:
        return self._processes.start(self._foreground)

    def _open_load(self, out_dir: Path) -> LoadSession:
        addresses = self._processes.addresses
        if addresses is None:
            raise TestbedError("start_load() before start()")
        layout = self._processes.layout
        source: TelemetrySource = RedisSource(self._processes.redis)
        if self._spec.load.telemetry == "file":
            source = FileSource(layout.telemetry, self._processes.redis)
            self._processes.spawn_k6(addresses.frontend_url, addresses.redis_url)
        return LoadSession(
            self._spec.load, _K6(self._processes.k6), source, layout.summary, out_dir
        )

    def _sample(self) -> None:
        self._processes.sample()

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        self._processes.check(load_began=self._session is not None)

    def backends(self) -> dict[str, str]:
        """Which backend is at which address, as HAProxy sees it."""
        addresses = self._processes.addresses
        urls = () if addresses is None else addresses.backend_urls
        return {url.partition("//")[2]: f"backend-{i}" for i, url in enumerate(urls, start=1)}

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        return self._processes.usage()

    def versions(self) -> dict[str, str]:
        """Version of every program, by program name."""
        return self._processes.versions()

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`. Raises `OutputFailed`."""
        if self._processes.addresses is None:
            return
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            for path in self._processes.layout.collectable():
                if path.exists():
                    shutil.copyfile(path, out_dir / path.name)
        except OSError as error:
            raise OutputFailed(f"{out_dir} can't be written: {error.strerror}") from error

    def _ends(self) -> Iterable[Callable[[], None]]:
        return self._processes.ends()


class _K6:
    """The k6 child as a `testbed.load.session.Generator`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def exit_code(self) -> int | None:
        return self._child.poll()

    def last_words(self) -> str:
        return self._child.log_tail()
