# SPDX-License-Identifier: Apache-2.0
"""Errors that a caller can act on. Each message says what was expected and what was got."""

from __future__ import annotations


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


class ShadowMismatch(OoospecError, AssertionError):
    """The state of a sequence differs from the state rebuilt from its committed tokens."""


class ModelNotFound(OoospecError, OSError):
    """There is no model or adapter that can be loaded under a name."""
