# SPDX-License-Identifier: Apache-2.0
"""Errors as OpenAI's API words them: a status, and a body that names the parameter."""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from ooospec.errors import InvalidRequest, OutOfPages, PromptTooLong

KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


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
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        kind = KINDS.get(self.status, usual)
        return {
            "error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        }

    def response(self) -> JSONResponse:
        """Returns the response that tells a client."""
        headers = {"Retry-After": "1"} if self.status == 429 else None
        return JSONResponse(self.body(), self.status, headers=headers)


def told(error: Exception) -> ApiError:
    """Returns what a client is told of an error: of one that is not its own only that there was
    one.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, PromptTooLong | OutOfPages):
        return ApiError(400, str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, InvalidRequest):
        field = str(error).partition(":")[0].partition("[")[0].partition(".")[0]
        return ApiError(400, str(error), param=field if field.isidentifier() else None)
    return ApiError(500, "the server failed to answer; its log says why", code="internal_error")
