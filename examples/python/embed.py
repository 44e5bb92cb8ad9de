# SPDX-License-Identifier: Apache-2.0
"""A decoding loop of your own with ooospec's drafts: `python embed.py MODEL_FOLDER`."""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ooospec import Drafter
from ooospec.chains import best_chain
from ooospec.methods import method
from ooospec.target_text import target_text

properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
schema = {"type": "object", "properties": properties}
tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
messages = [{"role": "user", "content": "Weather in Zürich, 3 days?"}]
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer.apply_chat_template(
    messages, tools=tools, add_generation_prompt=True, return_dict=True
)["input_ids"]
drafter = Drafter(target_text(tokenizer), tools, method("toolspec"), ids, messages=messages)
num_prompt, num_passes = len(ids), 0
while ids[-1] != tokenizer.eos_token_id and len(ids) < num_prompt + 200:
    draft = best_chain(drafter.propose(64), max_tokens=16)
    with torch.inference_mode():
        logits = model(torch.tensor([[*ids, *draft]])).logits[0, len(ids) - 1 :]
    choices = logits.argmax(dim=-1).tolist()  # the target's own, at each drafted token and behind
    num_right = next((i for i, token in enumerate(draft) if token != choices[i]), len(draft))
    committed = choices[: num_right + 1]
    if tokenizer.eos_token_id in committed:
        committed = committed[: committed.index(tokenizer.eos_token_id) + 1]
    drafter.commit(committed)
    ids, num_passes = [*ids, *committed], num_passes + 1
drafter.finish()
print(tokenizer.decode(ids[num_prompt:]))
print(f"{len(ids) - num_prompt} tokens in {num_passes} passes")
