# SPDX-License-Identifier: Apache-2.0
"""Models that come with the package: a toy target, and a toy sidecar with another tokenizer.

Their names are taken wherever a folder or hub id is. Their cards tell how they were made
(recipes/tiny.sh makes such). They lie beside this file; a package that was built without them has
none.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
PREFIX = "ooospec/"  # no name of the hub: what begins so came with the package
TARGET, SIDECAR = f"{PREFIX}tiny-target", f"{PREFIX}tiny-sidecar"
REAL_TARGET, REAL_SIDECAR = "Qwen/Qwen2.5-Coder-1.5B-Instruct", "Qwen/Qwen2.5-Coder-0.5B-Instruct"


def shipped_folder(source: str) -> Path | None:
    """Returns the folder of a model that came with the package; None for any other name."""
    folder = FOLDER / source.rpartition("/")[2]
    return folder if source in (TARGET, SIDECAR) and folder.is_dir() else None


def about(folder: Path) -> str:
    """Returns what a shipped model is: a toy, and how big."""
    num_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return f"a toy of {num_bytes / 2e6:.1f} million parameters, {num_bytes / 1e6:.0f} MB"
