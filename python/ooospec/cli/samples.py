# SPDX-License-Identifier: Apache-2.0
"""Requests that commands use when none are given."""

from __future__ import annotations

from typing import Any


def _tool(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


TOOLS = [
    _tool(
        "book_flight",
        "Books a flight for a number of passengers.",
        ["origin", "destination", "departure_date", "passengers"],
        origin=_text("City to depart from"),
        destination=_text("City to fly to"),
        departure_date=_text("Date as YYYY-MM-DD"),
        return_date=_text("Date of the flight back as YYYY-MM-DD"),
        passengers={"type": "integer", "description": "Number of passengers"},
        cabin=_text("Class of the seats", enum=["economy", "premium", "business"]),
        contact_email=_text("Where to send the tickets"),
    ),
    _tool(
        "get_weather",
        "Tells the weather of a city on a day.",
        ["city"],
        city=_text("Name of the city"),
        date=_text("Date as YYYY-MM-DD"),
        unit=_text("Unit of temperatures", enum=["celsius", "fahrenheit"]),
    ),
]

FLIGHT = (
    "Please book two business class seats from Zürich to Buenos Aires, leaving on 2026-11-03 and "
    "coming back on 2026-11-17, and send the tickets to maria.keller@example.org."
)

SHORT = "Please tell me the weather in Oslo on November 3, 2026 in celsius."  # toys understand it


def request(
    text: str, tools: list[dict[str, Any]] | None = TOOLS, name: str = ""
) -> dict[str, Any]:
    """Returns a request with one message of the user."""
    found: dict[str, Any] = {"id": name or text, "messages": [{"role": "user", "content": text}]}
    return found if tools is None else {**found, "tools": tools}


SAMPLES = [
    request(FLIGHT, name="flight"),
    request("Wie warm wird es morgen in München? Heute ist der 2026-03-04.", name="weather"),
    request("Name three rivers of South America.", None, name="prose"),
]
