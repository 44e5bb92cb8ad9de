# SPDX-License-Identifier: Apache-2.0
"""Errors that a caller can act on. Each message says what was expected and what was got."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OoospecError(Exception):
    """Base of all errors of this package."""


class UnsupportedModel(OoospecError, ValueError):
    """The model or its tokenizer cannot be run exactly; the message says why."""


class AdapterMismatch(OoospecError, ValueError):
    """An adapter was trained on another base model."""


class InvalidRequest(OoospecError, ValueError):
    """What was asked for is not valid: a request, an option, a file, an address."""


class PromptTooLong(InvalidRequest):
    """A prompt leaves no room for an answer in the context of the model."""


class OutOfPages(OoospecError, RuntimeError):
    """The KV cache has no pages left for a request."""


class EngineClosed(OoospecError, RuntimeError):
    """Something is asked of an engine that was closed."""


class ShadowMismatch(OoospecError, AssertionError):
    """The state of a sequence differs from the state rebuilt from its committed tokens."""


class MissingExtra(OoospecError, ImportError):
    """A package is not installed that an optional extra of this one brings."""


@contextmanager
def needs_extra(name: str, user: str) -> Iterator[None]:
    """Imports inside are of what the extra `name` brings; `user` is what needs it.

    Raises MissingExtra where they fail.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"{user}: expected the extra `{name}` (pip install 'ooospec[{name}]'), got none: "
            f"{error}"
        ) from error


class ModelNotFound(OoospecError, OSError):
    """There is no model or adapter that can be loaded under a name."""
