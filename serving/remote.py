"""Any OpenAI-compatible URL as an endpoint."""

from __future__ import annotations

import httpx

from serving.api import EndpointInfo
from serving.errors import EndpointUnreachable
from serving.probe import answers, ask, describe

_START_TIMEOUT_S = 30.0


class UrlEndpoint:
    """A model that somebody else serves. It is checked, never started or stopped.

    `base_url` ends in `/v1`; `model` is the name that the server knows it by (None: the only one
    it offers).
    """

    def __init__(
        self,
        base_url: str,
        api_key: str = "",
        model: str | None = None,
        liveness_timeout_s: float = 60.0,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._model = model
        self._liveness_timeout_s = liveness_timeout_s
        self._info: EndpointInfo | None = None

    def start(self) -> EndpointInfo:
        """Check that it answers and offers the model; raises `EndpointUnreachable`."""
        offered = self._offered()
        if self._model is None and len(offered) != 1:
            raise EndpointUnreachable(
                f"{self._base_url} offers {len(offered)} models ({_some(offered)}); "
                f"say which one with serving.model_id"
            )
        model = self._model or offered[0]
        if offered and model not in offered:
            raise EndpointUnreachable(
                f"{self._base_url} offers no model {model!r} (it has: {_some(offered)})"
            )
        self._info = EndpointInfo(
            base_url=self._base_url,
            api_key=self._api_key,
            model=model,
            report={"models": offered},
        )
        return self._info

    def alive(self) -> bool:
        """One tiny completion within the deadline; False before `start`."""
        return self._info is not None and answers(self._info, self._liveness_timeout_s)

    def stop(self) -> None:
        """Nothing to end: it is not ours."""
        self._info = None

    def _offered(self) -> list[str]:
        if not self._base_url.startswith(("http://", "https://")):
            raise EndpointUnreachable(
                f"{self._base_url or 'an empty address'} is no URL; set serving.base_url to one "
                f"that ends in /v1"
            )
        try:
            answer = ask(self._base_url, self._api_key, _START_TIMEOUT_S, "models")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointUnreachable(
                f"no answer from {self._base_url}/models ({type(error).__name__}: {error})"
            ) from None
        if answer.status_code in (401, 403):
            raise EndpointUnreachable(
                f"{self._base_url} refuses the API key ({describe(answer)}); put the right one "
                f"into the environment variable that serving.api_key_env names"
            )
        if answer.status_code != 200:
            raise EndpointUnreachable(
                f"{self._base_url}/models: {describe(answer)}; is it OpenAI-compatible, and does "
                f"the address end in /v1?"
            )
        try:
            return [str(model["id"]) for model in answer.json()["data"]]
        except (ValueError, KeyError, TypeError):
            raise EndpointUnreachable(
                f"{self._base_url}/models does not answer as an OpenAI-compatible API does"
            ) from None


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "") if names else "none"
