# SPDX-License-Identifier: Apache-2.0
"""The body of /v1/chat/completions: what is taken, and what is refused by name."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ooospec.serve.errors import ApiError
from ooospec.serve.limits import Limits


class StreamOptions(BaseModel):
    """include_usage: a last chunk says what the request took."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A request as OpenAI's clients send it. Fields that are not here are refused."""

    model_config = ConfigDict(extra="forbid")

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: Literal[1] | None = None

    def sampling(self) -> dict[str, Any]:
        """Returns the fields of SamplingParams that the request sets."""
        found: dict[str, Any] = {
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "stop": self.stop,
        }
        return {name: value for name, value in found.items() if value is not None}


def parse_request(body: bytes, limits: Limits) -> ChatRequest:
    """Returns the request of a body. Raises ApiError, naming the field, for one that is not
    valid.
    """
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"{where or 'body'}: {first['msg']}, got {first['input']!r:.80}"
        raise ApiError(400, message, param=str(first["loc"][0]) if where else None) from error
