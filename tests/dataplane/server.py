"""A Data Plane API made of its published description: an HTTP server that knows nothing else.

What the description does not have (path, method, parameter, authentication) is answered with an
error and kept as a violation, which the fixture in `conftest.py` makes a failure. What a test
wants answered must conform to the description too, or the test fails.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from openapi_core import OpenAPI
from openapi_core.contrib.werkzeug import WerkzeugOpenAPIRequest, WerkzeugOpenAPIResponse
from openapi_core.exceptions import OpenAPIError
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

DATA = Path(__file__).parent / "data"
MAJORS = ("v3", "v2")
USER, PASSWORD = "drainbench", "right"

Json = dict[str, Any]


@cache
def document(major: str) -> Json:
    """The description of a major version: OpenAPI 3.0."""
    return json.loads((DATA / f"dataplane-{major}.json").read_text())


def operation(major: str, operation_id: str) -> Json:
    """An operation of the description."""
    paths = document(major)["paths"]
    return next(p["get"] for p in paths.values() if p["get"]["operationId"] == operation_id)


def schema(major: str, operation_id: str, status: str = "200") -> Json:
    """Schema of an answer, as JSON Schema draft 7 (OpenAPI 3.0 has `nullable` instead of null)."""
    response = operation(major, operation_id)["responses"][status]
    return _nullable(response["content"]["application/json"]["schema"])


def _nullable(node: Any) -> Any:
    if isinstance(node, list):
        return [_nullable(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _nullable(value) for key, value in node.items() if key != "nullable"}
    if node.get("nullable") is True:
        plain["type"] = [plain["type"], "null"]
    return plain


SERVERS_OPERATION = {"v3": "getAllRuntimeServer", "v2": "getRuntimeServers"}
_BACKEND_PARAMETER = {"v3": "parent_name", "v2": "backend"}


def of_backends(major: str, rows: list[Json]) -> Any:
    """The answer that lists these backends: v2 wraps it."""
    return {"_version": 1, "data": rows} if major == "v2" else rows


@dataclass
class Answers:
    """What the server knows: bodies of the answers, as JSON values."""

    info: Any = field(default_factory=dict)
    backends: Any = None
    servers: Mapping[str, Any] = field(default_factory=dict)
    """By backend; another backend is not found."""
    error: Json = field(default_factory=lambda: {"code": 404, "message": "not found"})


class ContractServer:
    """Speaks one major version on loopback; a request of the other one is answered 404."""

    def __init__(self, speaks: str) -> None:
        self.speaks = speaks
        self.answers = Answers()
        self.violations: list[str] = []
        self.asked: list[str] = []
        self._descriptions = {major: OpenAPI.from_dict(document(major)) for major in MAJORS}
        self._server = make_server(
            "127.0.0.1", 0, self._application, threaded=True, request_handler=_Quiet
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    @Request.application
    def _application(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.full_path.rstrip('?')}")
        major = request.path.split("/")[1]
        if major not in MAJORS:
            return self._violates(request, 404, "no major version has this path")
        description = self._descriptions[major]
        asked = WerkzeugOpenAPIRequest(request)
        try:
            found = description.unmarshal_request(asked)
            found.raise_for_errors()
        except OpenAPIError as error:
            said = f"{error} ({error.__cause__})" if error.__cause__ else str(error)
            return self._violates(request, 400, said)
        operation = self._operation(major, request)
        declared = {p["name"] for p in operation["parameters"] if p["in"] == "query"}
        if unknown := request.args.keys() - declared:
            return self._violates(request, 400, f"no such parameter: {', '.join(sorted(unknown))}")
        if major != self.speaks:
            # As the real one does: what it does not route is not found, whoever asks.
            return self._answer(asked, 404, self.answers.error)
        signed = request.authorization
        if signed is None or (signed.username, signed.password) != (USER, PASSWORD):
            return self._answer(asked, 401, {"code": 401, "message": "unauthorized"})
        given = {**found.parameters.path, **found.parameters.query}
        return self._answer(asked, *self._body(operation["operationId"], given))

    def _operation(self, major: str, request: Request) -> Json:
        """The operation of a path that the description is known to have."""
        wanted = request.path.split("/")[2:]
        for path, item in document(major)["paths"].items():
            parts = path.split("/")[1:]
            if len(parts) == len(wanted) and all(
                part.startswith("{") or part == got for part, got in zip(parts, wanted, strict=True)
            ):
                return item[request.method.lower()]
        raise AssertionError(f"{request.path} was found a moment ago")

    def _body(self, operation_id: str, given: Mapping[str, Any]) -> tuple[int, Any]:
        if operation_id == "getInfo":
            return 200, self.answers.info
        if operation_id == "getBackends":
            return 200, self.answers.backends
        backend = given[_BACKEND_PARAMETER[self.speaks]]
        if backend not in self.answers.servers:
            return 404, self.answers.error
        return 200, self.answers.servers[backend]

    def _answer(self, asked: WerkzeugOpenAPIRequest, status: int, body: Any) -> Response:
        response = Response(json.dumps(body), status, content_type="application/json")
        major = asked.path.split("/")[1]
        try:
            self._descriptions[major].validate_response(asked, WerkzeugOpenAPIResponse(response))
        except OpenAPIError as error:
            self.violations.append(f"the test's own answer: {error} ({error.__cause__})")
        return response

    def _violates(self, request: Request, status: int, what: str) -> Response:
        self.violations.append(f"{request.method} {request.full_path}: {what}")
        return Response(json.dumps({"code": status, "message": what}), status)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # as the real one: connections are kept
    disable_nagle_algorithm = True  # head and body are two writes; the second would wait 40 ms

    def log(self, *arguments: Any, **named: Any) -> None:
        """Nothing."""
