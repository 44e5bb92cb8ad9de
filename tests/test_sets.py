# SPDX-License-Identifier: Apache-2.0
"""The evaluation sets: rows out of files in the formats that their authors publish."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ooospec.cli.main import run
from ooospec.errors import InvalidRequest
from ooospec.hashes import checkpoint_hash, requests_hash
from ooospec.sets.build import SETS, build
from ooospec.sets.checks import problems

SYSTEM = """You are a helpful assistant.

**Available Tools**
In your response, you can use the following tools:
1. Name: Book
Description: Books a room.
Parameters: {'city': {'type': 'str', 'description': 'Where.'}, \
'nights': {'type': 'int', 'description': 'How long.'}, \
'extras': {'type': 'list(str)', 'description': '[Optional] What else.'}, \
'guests': {'type': 'list', 'description': 'Who.'}}
2. Name: Cancel
Description: Cancels.
Parameters: {}

**Only generate Tool Calls**"""
TALK = """**Dialogue Records History**
<user>A room in Oslo.</user>
<response>Sure.</response>
<response>One moment.</response>
<tool_call>
{"name": "Cancel", "parameters": {}}
</tool_call>
<obs> {'ok': True} </obs>
<tool_call>
{"name": "Cancel", "parameters": {}}
</tool_call>
<obs> no </obs>

<user> And now? </user>

<user> Based on our conversation above, please only make one tool call.</user>
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def apibank(tmp_path: Path) -> Path:
    answer = {"name": "Book", "parameters": {"city": "Oslo", "nights": "2"}}
    one = {"system": SYSTEM, "user": TALK, "answer": [answer], "other": {"id": 3}}
    short = SYSTEM.replace("1. Name: Book\nDescription: ", "1. Book: ")
    other = one | {"system": short, "answer": {"name": "Nobody", "parameters": {}}}
    levels = {1: [one], 2: [other], 3: []}
    return write(
        tmp_path,
        {
            f"data/API-Bank/level-{level}-api_processed.json": json.dumps(rows)
            for level, rows in levels.items()
        },
    )


def rows_of(name: str, folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in build(name, folder).lines.splitlines()]


def test_api_bank_tools_are_read_from_the_system_text(apibank: Path) -> None:
    first, second = rows_of("apibank", apibank)
    assert first["id"] == "apibank-l1-0000"
    assert second["id"] == "apibank-l2-0000"
    book, cancel = (tool["function"] for tool in first["tools"])
    assert book == {
        "name": "Book",
        "description": "Books a room.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "nights": {"type": "integer", "description": "How long."},
                "extras": {
                    "type": "array",
                    "description": "[Optional] What else.",
                    "items": {"type": "string"},
                },
                "guests": {"type": "array", "description": "Who.", "items": {}},
            },
            "required": ["city", "nights", "guests"],
        },
    }
    assert cancel["name"] == "Cancel"
    assert second["tools"] == first["tools"]  # level 3 has another form of the same
    assert first["calls"] == [{"name": "Book", "arguments": {"city": "Oslo", "nights": "2"}}]
    assert first["meta"] == {
        "level": 1,
        "other": {"id": 3},
        "type_mismatch": ["Book.nights"],
        "missing_required": ["Book.guests"],
    }
    assert second["meta"]["gold_problems"] == ["call_not_in_tools"]


def test_api_bank_dialogues_are_unrolled_into_turns(apibank: Path) -> None:
    first = rows_of("apibank", apibank)[0]
    assert first["messages"] == [{"role": "user", "content": TALK}]
    turns = first["messages_unrolled"]
    assert [turn["role"] for turn in turns] == [
        *("user", "assistant", "tool", "assistant", "tool", "user")
    ]
    assert turns[1]["content"] == "Sure.\nOne moment."
    assert turns[1]["tool_calls"][0]["function"] == {"name": "Cancel", "arguments": "{}"}
    assert turns[2] == {"role": "tool", "content": "{'ok': True}", "tool_call_id": "call_0"}
    assert turns[3]["content"] == ""
    assert turns[4]["tool_call_id"] == turns[3]["tool_calls"][0]["id"] == "call_1"
    assert turns[5]["content"].startswith("And now?\n\nBased on")


@pytest.fixture
def toolalpaca(tmp_path: Path) -> Path:
    document = {
        "paths": {
            "/find": {
                "get": {
                    "summary": "Finds.",
                    "description": "At length.",
                    "parameters": [
                        {"name": "api_key", "required": True, "schema": {"type": "string"}},
                        {
                            "name": "size",
                            "description": "How big.",
                            "schema": {"type": "string", "enum": ["s", "m"]},
                        },
                    ],
                }
            },
            "/add": {
                "post": {
                    "requestBody": {
                        "content": {"application/json": {"schema": {"$ref": "#/components/Add"}}}
                    }
                }
            },
        },
        "components": {
            "Add": {
                "properties": {"tags": {"type": "array"}, "at": {"$ref": "#/components/At"}},
                "required": ["tags"],
            },
            "At": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
    }
    actions = [
        ("find", '{"api_key": "secret", "size": "xl"}'),
        ("add", '{"tags": "tags": ["a"]}'),
        ("getDetails", '{"Question": "Which?"}'),
        ("unknown", "{}"),
        ("add", '{"tags": ${tags}}'),
        ("add", '{"tags": ["${tag}"]}'),
    ]
    api = {
        "Name": "Things",
        "Category": "Test",
        "Documentation": json.dumps(document),
        "Function_Projection": {"find": ["/find", "get"], "add": ["/add", "post"]},
        "Function_Description": {"find": "F", "add": "\nAdds.", "components": ""},
        "Instructions": [f"Request {i}" for i in range(len(actions))],
        "Golden_Answers": [[{"Action": name, "Action_Input": text}] for name, text in actions],
    }
    files = {"data/eval_simulated.json": json.dumps([api]), "data/eval_real.json": "[]"}
    return write(tmp_path, files)


def test_toolalpaca_takes_first_actions_that_are_calls(toolalpaca: Path) -> None:
    rows = rows_of("toolalpaca", toolalpaca)
    assert [row["id"][-2:] for row in rows] == ["00", "01", "05"]
    find, add = (tool["function"] for tool in rows[0]["tools"])
    assert find["description"] == "Finds."
    assert find["parameters"]["required"] == ["api_key"]
    assert find["parameters"]["properties"]["size"]["enum"] == ["s", "m"]
    assert add["description"] == "Adds."
    assert add["parameters"]["required"] == ["tags"]
    assert add["parameters"]["properties"]["tags"] == {"type": "array", "items": {}}
    assert add["parameters"]["properties"]["at"]["properties"] == {"x": {"type": "number"}}
    assert rows[0]["calls"][0]["arguments"] == {"api_key": "YOUR_API_KEY", "size": "xl"}
    assert rows[0]["meta"]["redacted"] == "api_key"
    assert rows[0]["meta"]["enum_mismatch"] == ["find.size"]
    assert rows[1]["calls"][0]["arguments"] == {"tags": ["a"]}
    assert rows[1]["meta"]["gold_json_repaired"] is True
    assert rows[2]["meta"]["gold_placeholder"] is True


@pytest.fixture
def bfcl(tmp_path: Path) -> Path:
    parameters = {
        "type": "dict",
        "properties": {
            "map": {"type": "HashMap", "description": "A map."},
            "all": {"type": "ArrayList", "items": {"type": "String"}, "description": "All."},
            "any": {"type": "any", "default": 1},
        },
        "required": ["map"],
    }
    function = {"name": "A.b", "description": "Does b.", "parameters": parameters}
    truth = {"map": [{"k": ["v", ""]}], "all": [[1]], "any": ["", "x"]}
    files = {}
    for language in ("java", "javascript"):
        name = f"simple_{language}_3"
        asked = {"id": name, "question": [[{"role": "user", "content": "Do."}]]}
        answer = {"id": name, "ground_truth": [{"A.b": truth}]}
        file = f"BFCL_v4_simple_{language}.json"
        files[f"bfcl_eval/data/{file}"] = json.dumps(asked | {"function": [function]})
        files[f"bfcl_eval/data/possible_answer/{file}"] = json.dumps(answer)
    return write(tmp_path, files)


def test_bfcl_types_and_first_values(bfcl: Path, tmp_path: Path) -> None:
    rows = rows_of("bfcl", bfcl)
    assert [row["id"] for row in rows] == ["bfcl-simple_java_3", "bfcl-simple_javascript_3"]
    assert rows[0]["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "map": {"type": "object", "description": "A map."},
            "all": {"type": "array", "description": "All.", "items": {"type": "string"}},
            "any": {"type": "string", "default": 1},
        },
        "required": ["map"],
    }
    assert rows[0]["calls"] == [{"name": "A.b", "arguments": {"map": {"k": "v"}, "all": [1]}}]
    assert rows[0]["meta"]["type_mismatch"] == ["A.b.all"]
    wheel = tmp_path / "bfcl.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for file in bfcl.rglob("*.json"):
            packed.write(file, file.relative_to(bfcl))
    assert build("bfcl", wheel).lines == build("bfcl", bfcl).lines


def test_the_command_prints_the_hash_and_says_where_it_is_another(
    bfcl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["requests", "build", "bfcl", str(bfcl), "--out", str(out)]) == 1
    said = capsys.readouterr()
    file = out / "eval_bfcl_javajs.jsonl.gz"
    assert said.out == f"{requests_hash(file)}  {file}\n"
    assert "2 requests, others than " + SETS["bfcl"].sha256 in said.err
    assert "bfcl_eval/data/BFCL_v4_simple_java.json: not the file of bfcl_eval" in said.err
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    assert requests_hash(plain) == requests_hash(file)


def test_files_of_another_kind_are_refused(bfcl: Path, apibank: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"expected a file data/eval_simulated\.json"):
        build("toolalpaca", bfcl)
    (apibank / "data/API-Bank/level-1-api_processed.json").write_text("[{}]")
    with pytest.raises(InvalidRequest, match=r"got others \(KeyError\('system'\); data/API-Bank"):
        build("apibank", apibank)
    (tmp_path / "text").write_text("x")
    with pytest.raises(InvalidRequest, match="expected a folder or a wheel"):
        build("bfcl", tmp_path / "text")


def test_problems_look_into_values() -> None:
    schema = {
        "type": "object",
        "properties": {
            "flags": {"type": "array", "items": {"type": "boolean"}},
            "n": {"type": "number"},
            "at": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
        "required": [],
    }
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]

    def wrong(**arguments: Any) -> dict[str, list[str]]:
        return problems([{"name": "f", "arguments": arguments}], tools)

    assert wrong(flags=[True, False], n=1, at={"x": 1, "y": "z"}) == {}
    assert wrong(flags=[1]) == {"type_mismatch": ["f.flags"]}
    assert wrong(n=True) == {"type_mismatch": ["f.n"]}
    assert wrong(at={"x": 1.5}) == {"type_mismatch": ["f.at"]}
    assert wrong(z=1) == {"gold_problems": ["argument_not_in_schema"]}


def test_a_checkpoint_has_the_hash_of_what_is_in_it(tmp_path: Path) -> None:
    assert checkpoint_hash("nobody/has-this-model") == "unknown"
    (tmp_path / "config.json").write_text("{}")
    before = checkpoint_hash(tmp_path)
    (tmp_path / "card.md").write_text("read me")
    assert checkpoint_hash(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("weights")
    assert checkpoint_hash(tmp_path) != before


def test_the_readme_has_the_known_hashes() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    for one in SETS.values():
        assert f"`{one.sha256}`" in readme
        assert one.source.rpartition(" ")[0].split(" ")[0] in readme


@pytest.mark.real
def test_the_known_hashes_are_those_of_the_request_files() -> None:
    data = Path(os.environ["OOOSPEC_DATA"])
    for one in SETS.values():
        assert requests_hash(data / f"{one.file}.jsonl.gz") == one.sha256
