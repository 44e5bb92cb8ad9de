# SPDX-License-Identifier: Apache-2.0
"""Errors as OpenAI's API words them: a status, and a body that names the parameter."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from ooospec.errors import InvalidRequest, OutOfPages, PromptTooLong


class ApiError(Exception):
    """What a client is told instead of an answer. param: the field of the request at fault."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """Returns the error as OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 429 else "server_error"
        kind = "rate_limit_error" if self.status == 429 else kind
        return {
            "error": {
                "message": str(self),
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


def api_error(error: Exception) -> ApiError | None:
    """Returns what a client is told of an error of the engine; None for one that is a bug."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLong | OutOfPages):
        return ApiError(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, InvalidRequest):
        field = str(error).partition(":")[0].partition("[")[0]
        return ApiError(400, str(error), param=field if field.isidentifier() else None)
    return None


def error_response(error: ApiError) -> JSONResponse:
    """Returns the response that tells a client of `error`."""
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return JSONResponse(error.body(), error.status, headers=headers)


async def answer_api_error(_: Request, error: Exception) -> JSONResponse:
    """Handles an ApiError that left a route."""
    assert isinstance(error, ApiError)
    return error_response(error)
