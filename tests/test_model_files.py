# SPDX-License-Identifier: Apache-2.0
"""Folders of models that are broken, or none at all: one sentence that names what is wrong."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from rich.console import Console

from ooospec.backends.load import load_backend, load_model, merge_adapter, wrap_with_adapter
from ooospec.cli.options import announce
from ooospec.errors import ModelNotFound
from ooospec.model_files import load_tokenizer, located, model_path
from tiny_models import save_tiny, tiny_model

WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
Break = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random model."""
    folder = tmp_path_factory.mktemp("model")
    save_tiny(folder, num_hidden_layers=1)
    return folder


def config(**changes: Any) -> Break:
    """Makes the configuration ask for other weights than there are."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def half(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


FOLDERS: list[tuple[Break, str]] = [
    (half, "in safetensors, got .*deserializing header"),
    (lambda folder: (folder / WEIGHTS).write_bytes(b""), "in safetensors, got .*header"),
    (lambda folder: (folder / WEIGHTS).write_bytes(b"\xff" * 999), "in safetensors, got .*header"),
    (lambda folder: (folder / WEIGHTS).unlink(), "in safetensors, got .*no file named"),
    (lambda folder: (folder / "config.json").write_text("{"), "in safetensors, got .*JSON"),
    (lambda folder: (folder / "config.json").write_text("{}"), "in safetensors, got .*model_type"),
    (config(num_hidden_layers=2, layer_types=["full_attention"] * 2), r"without model\.layers\.1"),
    (config(vocab_size=7), r"where .*weight is \[.*\] and by its config \[7, "),
    (lambda folder: (folder / TOKENIZER).write_text("{"), "with a tokenizer, got .*line 1"),
    (lambda folder: (folder / TOKENIZER).write_text("{}"), "with a tokenizer, got .*KeyError"),
    (lambda folder: (folder / TOKENIZER).unlink(), "with a tokenizer, got .*special tokens only"),
]


@pytest.mark.parametrize(("broken", "sentence"), FOLDERS)
def test_a_broken_folder_is_named_with_what_is_wrong(
    broken: Break, sentence: str, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(whole, folder)
    broken(folder)
    with pytest.raises(
        ModelNotFound, match=f"^model: expected a folder or hub id .*{sentence}"
    ) as e:
        load_backend(folder)
    assert str(folder) in str(e.value)
    assert "\n" not in str(e.value)


def test_names_are_folders_hub_ids_or_nothing(whole: Path, tmp_path: Path) -> None:
    assert model_path(str(whole)) == str(whole)
    assert model_path("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    file = tmp_path / "file"
    file.write_text("")
    for name in ("/no/such/model", "./none", "../none", "~/none", "a/b/c", "", "org/", "a\0b"):
        with pytest.raises(ModelNotFound, match=r"^sidecar: expected .*: no such folder$") as e:
            model_path(name, "sidecar")
        assert repr(name) in str(e.value)
    for name in ("ooospec/tiny-targt", "ooospec/"):
        toys = f"ooospec/tiny-target or ooospec/tiny-sidecar, got '{name}'$"
        with pytest.raises(ModelNotFound, match=toys):
            model_path(name)
    with pytest.raises(ModelNotFound, match=f"got the file '{file}'"):
        model_path(str(file))
    with pytest.raises(ModelNotFound, match="no such folder"):
        load_model("/no/such/model", torch.float32)
    with pytest.raises(ModelNotFound, match=r"^--tokenizer: expected .*no such folder"):
        load_tokenizer("/no/such/model", "--tokenizer")


@pytest.mark.parametrize("device", ["toaster", "cpu:x", "meta", 3.5, "xla"])
def test_devices_that_are_not_here_are_named(device: Any, whole: Path) -> None:
    with pytest.raises(ValueError, match=r"^device: expected one that is here, .*got") as e:
        load_backend(whole, device=device)
    assert repr(device) in str(e.value)


def test_an_adapter_that_peft_did_not_write(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = tiny_model("qwen2", num_hidden_layers=1)
    wrapped = wrap_with_adapter(model, peft.LoraConfig(target_modules=["q_proj"]))
    wrapped.save_pretrained(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:100])
    with pytest.raises(ModelNotFound, match=r"^adapter: expected a folder that PEFT wrote.*header"):
        merge_adapter(tiny_model("qwen2", num_hidden_layers=1), tmp_path)
    weights.write_bytes(good)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(ModelNotFound, match=r"^adapter: expected a folder that PEFT wrote"):
        merge_adapter(tiny_model("qwen2", num_hidden_layers=1), tmp_path)


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers for two models and has no others."""

    def do_HEAD(self) -> None:
        model = self.path.split("/")[2]
        self.send_response({"there": 200, "busy": 503}.get(model, 404))
        for name, value in {
            "X-Repo-Commit": "c" * 40,
            "ETag": '"e"',
            "Content-Length": "2",
        }.items():
            self.send_header(name, value)
        if model == "gone":
            self.send_header("X-Error-Code", "RepoNotFound")
        if model == "empty":
            self.send_header("X-Error-Code", "EntryNotFound")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def ask_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets where the hub is, as HF_ENDPOINT does for a new process."""
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    """A hub that answers until it is closed."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        ask_at(f"http://127.0.0.1:{server.server_port}", monkeypatch)
        yield server
        server.shutdown()
        thread.join()


def test_the_hub_is_asked_for_what_is_not_here(hub: http.server.HTTPServer, whole: Path) -> None:
    assert located(str(whole)) == str(whole)
    assert located("some/there") == "some/there"
    assert located("some/busy") == "some/busy"  # the loaders wait for it
    for name in ("gone", "empty"):
        with pytest.raises(
            ModelNotFound, match=f"^target: .*, got 'some/{name}': no such folder, and of the hub: "
        ):
            located(f"some/{name}", "target")


def test_without_a_network_a_hub_id_is_one_error_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No port is tried again and again, whoever loads."""
    with socket.socket() as closed:  # bound, and not listening
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        ask_at(endpoint, monkeypatch)
        loaders = {
            load_backend: "config.json",
            load_tokenizer: "tokenizer_config.json",
            lambda name: announce("model", name, Console()): "config.json",
        }
        for load, file in loaders.items():
            with pytest.raises(ModelNotFound) as e:
                load("some/name")
            assert str(e.value).startswith(
                "model: expected a folder or hub id of a model, got 'some/name': no such folder, "
                f"and of {endpoint}/some/name/resolve/main/{file}: "
            )
            assert "HF_HUB_ETAG_TIMEOUT, 10 seconds" in str(e.value)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(ModelNotFound, match=r"not in the cache, and HF_HUB_OFFLINE is set$"):
            load_backend("some/name")
    assert "Retrying" not in caplog.text


def test_a_model_of_the_cache_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: Path
) -> None:
    place = tmp_path / "models--some--name"
    shutil.copytree(whole, place / "snapshots" / ("c" * 40))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("c" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_backend("some/name").context_limit == load_backend(whole).context_limit
