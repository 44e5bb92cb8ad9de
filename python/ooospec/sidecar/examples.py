# SPDX-License-Identifier: Apache-2.0
"""Worked examples for sidecar models that were not trained on our prompts."""

from __future__ import annotations

from typing import Any

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "book_table",
        "description": "Books a table in a restaurant.",
        "parameters": {
            "properties": {
                "restaurant": {"type": "string", "description": "Name of the restaurant"},
                "guests": {"type": "integer", "description": "Number of guests"},
                "outdoor": {"type": "boolean", "description": "Sit outside"},
                "tags": {"type": "array", "items": {"type": "string"}, "description": "Wishes"},
            },
            "required": ["restaurant", "guests"],
        },
    },
    {
        "name": "get_opening_hours",
        "description": "Tells when a restaurant is open.",
        "parameters": {
            "properties": {
                "restaurant": {"type": "string", "description": "Name of the restaurant"},
                "day": {"type": "string", "description": "Date as YYYY-MM-DD"},
            },
            "required": ["restaurant"],
        },
    },
)

# What the user says, the function, and the value of each of its parameters.
EXAMPLES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "A table for four at Chez Nous please, vegan and quiet.",
        "book_table",
        {"restaurant": "Chez Nous", "guests": 4, "outdoor": None, "tags": ["vegan", "quiet"]},
    ),
    (
        "When is Blue Door open on 5 May 2024?",
        "get_opening_hours",
        {"restaurant": "Blue Door", "day": "2024-05-05"},
    ),
    ("Thank you, bye!", "none", {}),
)
