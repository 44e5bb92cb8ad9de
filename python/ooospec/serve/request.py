# SPDX-License-Identifier: Apache-2.0
"""The body of /v1/chat/completions: what is taken, and what is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ooospec.formats import nesting
from ooospec.serve.errors import ApiError
from ooospec.serve.limits import MAX_STOP_CHARACTERS, MAX_STOPS, Limits

# What is not supported may be sent with a value that asks for nothing.
NOTHING_ASKED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "metadata": ({},),
    "service_tier": ("auto", "default"),
    "functions": ([],),
}
# Names of whoever asks: nothing follows from them.
LABELS = ("user", "safety_identifier", "prompt_cache_key")
ROLES = ("system", "developer", "user", "assistant", "tool")


def _as_whole(value: Any) -> Any:
    """Returns a whole number as JSON means it: 1.0 is 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_as_whole)
Whole = Annotated[int, WHOLE]
Count = Annotated[int, Field(ge=0), WHOLE]
AtLeastOne = Annotated[int, Field(ge=1), WHOLE]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]


class Strict(BaseModel):
    """Fields that are not there are refused, and so are values of other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StreamOptions(Strict):
    """include_usage: a last chunk says what the request took."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class FunctionName(Strict):
    """The function that a tool_choice names."""

    name: str


class NamedTool(Strict):
    """A tool_choice that names a function."""

    type: Literal["function"]
    function: FunctionName


class ChatRequest(Strict):
    """A request as OpenAI's clients send it. Fields that are not here are refused."""

    model: str
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    min_tokens: Count | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: Count | None = None
    seed: Whole | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    ignore_eos: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _drop_what_asks_nothing(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in body.items() if not _asks_nothing(name, value)}

    @property
    def names_tool(self) -> str | None:
        """The function that has to be called, if one has."""
        choice = self.tool_choice
        return choice.function.name if isinstance(choice, NamedTool) else None

    def sampling(self) -> dict[str, Any]:
        """Returns the fields of SamplingParams that the request sets."""
        found: dict[str, Any] = {
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "min_tokens": self.min_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "stop": self.stop,
            "ignore_eos": self.ignore_eos,
        }
        return {name: value for name, value in found.items() if value is not None}


def _asks_nothing(name: str, value: Any) -> bool:
    if value is None and name not in ("model", "messages"):
        return True
    if name in LABELS:
        return isinstance(value, str)
    return any(
        value == neutral and type(value) in (type(neutral), float)
        for neutral in NOTHING_ASKED.get(name, ())
    )


def parse_request(body: bytes, limits: Limits) -> ChatRequest:
    """Returns the request of a body. Raises ApiError, naming the field, for one that is not valid.

    Cost: O(bytes); off the event loop.
    """
    depth = nesting(body)
    if depth > limits.max_depth:
        message = f"body: expected at most {limits.max_depth} nested lists and objects, got {depth}"
        raise ApiError(400, message, code="too_deep")
    try:
        asked = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _invalid(error) from error
    _check_limit("messages", len(asked.messages), limits.max_messages)
    _check_limit("tools", len(asked.tools or ()), limits.max_tools)
    for name in ("max_tokens", "max_completion_tokens"):
        _check_limit(name, getattr(asked, name) or 0, limits.max_answer_tokens)
    _check_messages(asked)
    _check_tools(asked)
    if asked.stream_options is not None and not asked.stream:
        message = f"stream_options: expected stream to be true, got {str(asked.stream).lower()}"
        raise ApiError(400, message, param="stream_options")
    return asked


def _invalid(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    param = str(first["loc"][0]) if where else None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{where}: not supported by this server", param=param)
    message = f"{where or 'body'}: {first['msg']}, got {first['input']!r:.80}"
    return ApiError(400, message, param=param)


def _check_limit(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise ApiError(400, f"{name}: expected at most {limit}, got {value}", param=name)


def _check_messages(asked: ChatRequest) -> None:
    for i, message in enumerate(asked.messages):
        role = message.get("role")
        if role not in ROLES:
            expected = ", ".join(ROLES)
            text = f"messages[{i}].role: expected one of {expected}, got {role!r:.80}"
            raise ApiError(400, text, param="messages")
        for name in [name for name, value in message.items() if value is None]:
            del message[name]
        if role == "developer":  # a newer word for it, that templates do not know
            message["role"] = "system"


def _check_tools(asked: ChatRequest) -> None:
    names = []
    for i, tool in enumerate(asked.tools or ()):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            text = f"tools[{i}]: expected a tool of type function, got {tool!r:.80}"
            raise ApiError(400, text, param="tools")
        if function.get("strict"):
            text = f"tools[{i}].function.strict: not supported by this server, expected false"
            raise ApiError(400, text, param="tools")
        names.append(function.get("name"))
    if asked.names_tool is not None and asked.names_tool not in names:
        text = f"tool_choice: expected a function of tools, got {asked.names_tool!r:.80}"
        raise ApiError(400, text, param="tool_choice")
    if asked.tool_choice in ("required", "auto") and not asked.tools:
        raise ApiError(
            400, "tool_choice: expected tools to choose from, got none", param="tool_choice"
        )
