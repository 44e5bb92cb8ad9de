# SPDX-License-Identifier: Apache-2.0
"""The card of a tiny model: what it is, how it was made, what it is not for."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

CARD = "README.md"
_ABOUT = {
    "target": "writes tool calls as `<tool_call>` JSON",
    "sidecar": "predicts the function and the arguments of a call for `ooospec`",
}


def write_card(folder: Path, numbers: Mapping[str, Any]) -> None:
    """Writes the card of the model in `folder` from the numbers of its training.

    Those of a model that comes with the package say at which revision of it they were trained:
    made-up requests of others are others.
    """
    stages = _stages(numbers)
    lines = [
        "---",
        "license: apache-2.0",
        "---",
        "",
        f"# A toy {numbers['part']} of ooospec",
        "",
        f"A Qwen3 model of {numbers['parameters'] / 1e6:.2f} million parameters with a byte-level "
        f"BPE of its own, trained from scratch. It {_ABOUT[numbers['part']]}, in English, for "
        "demonstrations and tests. It is too small to be right about much else; name a real model "
        "for real work.",
        "",
        *(line for one in stages for line in (*_trained(one), "")),
        "| dev set | loss | rows written right |",
        "| --- | --- | --- |",
    ]
    for name, found in numbers["dev"].items():
        shares = ", ".join(f"{kind} {share:.1%}" for kind, share in found.items() if kind != "loss")
        lines.append(f"| {name} | {found['loss']:.4f} | {shares} |")
    revision = f", at revision {numbers['revision']}" if "revision" in numbers else ""
    lines += ["", f"To make it again{revision}:", "", *_commands(stages), ""]
    (folder / CARD).write_text("\n".join(lines))


def _stages(numbers: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the numbers of each training, the first one first."""
    before = numbers.get("before")
    return [*(_stages(before) if before else ()), numbers]


def _trained(numbers: Mapping[str, Any]) -> list[str]:
    settings = numbers["settings"]
    return [
        f"Trained on {numbers['examples']} requests: {_sources(numbers['sources'])}; those of "
        "`synth` are made up by `ooospec requests synth`.",
        f"{settings['num_steps']} steps of {settings['step_tokens']} tokens, learning rate "
        f"{settings['learning_rate']:g}, seed {settings['seed']}.",
    ]


def _commands(stages: Seq[Mapping[str, Any]]) -> list[str]:
    commands = []
    for number, one in enumerate(stages):
        settings = one["settings"]
        commands.append(
            f"    python -m ooospec.tiny train {one['part']} --synth {one['synth']} --strange "
            f"{one['strange']:g} {_other_options(one)}"
            f"--repeat {one['repeat']} --steps {settings['num_steps']} "
            f"--step-tokens {settings['step_tokens']} --learning-rate "
            f"{settings['learning_rate']:g} --seed {settings['seed']} "
            "--requests FILES "
            + (f"--start FOLDER{number} " if number else "")
            + f"--out FOLDER{number + 1}"
        )
    return commands


def _other_options(numbers: Mapping[str, Any]) -> str:
    """Returns options that the first revisions do not have, nor their numbers."""
    if "unclear" not in numbers:
        return ""
    weight = numbers["settings"]["text_weight"]
    return f"--unclear {numbers['unclear']:g} --cuts {numbers['cuts']} --text-weight {weight:g} "


def _sources(sources: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sources.items())
