"""The Flask app. Run it as `gunicorn 'testbed.backend.app:create_app()'`."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping

from flask import Flask, Response, request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
    multiprocess,
)

from testbed.backend.identity import instance_number
from testbed.backend.settings import behaviour_of, from_environment

INSTANCE_HEADER = "X-Instance"
REQUEST_HEADER = "X-Request-Id"


def create_app(
    environ: Mapping[str, str] | None = None, sleep: Callable[[float], None] = time.sleep
) -> Flask:
    """The app of one instance, from its environment (see `settings` and `identity`).

    Routes: `/work` (200 or 500 after the profile's delay), `/healthz`, `/metrics`.
    """
    environ = os.environ if environ is None else environ
    instance = instance_number(environ)
    behaviour = behaviour_of(from_environment(environ), instance)
    registry = CollectorRegistry()
    answered = Counter("backend_requests", "Answered requests.", ["code"], registry=registry)
    delays = Histogram("backend_delay_seconds", "Drawn delay.", registry=registry)
    by_code = {code: answered.labels(code) for code in ("200", "500")}
    linger_s = behaviour.profile.linger_ms / 1000
    headers = {INSTANCE_HEADER: str(instance)}
    app = Flask(__name__)

    @app.get("/work")
    def work() -> Response:
        # A request without an id still gets a draw, only not a reproducible one.
        outcome = behaviour.draw(request.headers.get(REQUEST_HEADER) or uuid.uuid4().hex)
        sleep(outcome.delay_ms / 1000)
        delays.observe(outcome.delay_ms / 1000)
        status = 500 if outcome.failed else 200
        by_code[str(status)].inc()
        response = Response("failed\n" if outcome.failed else "ok\n", status, headers)
        if linger_s:
            # Runs once the answer has been sent, and before the thread is free again.
            response.call_on_close(lambda: sleep(linger_s))
        return response

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", 200, headers)

    @app.get("/metrics")
    def metrics() -> Response:
        shown = registry
        if "PROMETHEUS_MULTIPROC_DIR" in environ:
            # Several workers: the sum over their files, whichever of them is asked.
            shown = CollectorRegistry()
            multiprocess.MultiProcessCollector(shown)
        return Response(generate_latest(shown), content_type=CONTENT_TYPE_LATEST)

    return app
