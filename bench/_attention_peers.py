# SPDX-License-Identifier: Apache-2.0
"""What others offer for a draft tree's attention, over the same keys, as providers of a bench."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from _gpu import Provider


def peers(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
) -> list[Provider]:
    """Returns the peers, masked SDPA first.

    q: [N, H, D]. keys, values: [slots, G, D]. pages: int32[P] of the sequence, of 64 slots, whose
    tokens and rows lie one behind the other. visible: bool[N, tokens + N].
    """
    makers: dict[str, Callable[[], Provider]] = {
        "SDPA": lambda: _sdpa(q, keys, values, pages, visible, scale, expand=True),
        "SDPA enable_gqa": lambda: _sdpa(q, keys, values, pages, visible, scale, expand=False),
        "FlashInfer": lambda: _flashinfer(q, keys, values, pages, visible, scale),
        "FlexAttention": lambda: _flex(q, keys, values, pages, visible, scale),
    }
    found = []
    for name, make in makers.items():
        try:
            found.append(make())
        except (ImportError, RuntimeError, NotImplementedError) as error:
            reason = f"{type(error).__name__} {error}".splitlines()[0][:80]
            found.append(Provider(name, missing=reason))
    return found


def _gather(cached: torch.Tensor, pages: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Returns [1, G, num_keys, D]: the keys in order, as those want them that know no pages."""
    in_pages = cached.view(-1, 64, *cached.shape[1:])[pages.long()]
    return in_pages.flatten(0, 1)[:num_keys].transpose(0, 1)[None].contiguous()


def _sdpa(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    *,
    expand: bool,
) -> Provider:
    """Masked SDPA; the gathering of pages, and of heads if `expand`, is not timed."""
    query = q.transpose(0, 1)[None]
    k, v = (_gather(cached, pages, visible.shape[1]) for cached in (keys, values))
    if expand:
        group = query.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    # Rows of the mask start at multiples of 16 bytes, as the fast kernels want them.
    mask = torch.zeros(len(q), -(-visible.shape[1] // 8) * 8, dtype=torch.bool, device=q.device)
    mask[:, : visible.shape[1]] = visible
    bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -torch.inf)
    bias = bias[:, : visible.shape[1]]

    def run() -> torch.Tensor:
        got = scaled_dot_product_attention(
            query, k, v, attn_mask=bias, scale=scale, enable_gqa=not expand
        )
        return got[0].transpose(0, 1)

    run()
    return Provider("SDPA" if expand else "SDPA enable_gqa", run)


def _flashinfer(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
) -> Provider:
    """Prefill with a custom mask over the same pages; its plan is not timed."""
    from flashinfer import BatchPrefillWithPagedKVCacheWrapper

    num_keys = visible.shape[1]

    def index(*numbers: int) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=q.device)

    used = pages[: -(-num_keys // 64)].contiguous()
    packed_bytes = len(q) * -(-num_keys // 8) + 64
    wrapper = BatchPrefillWithPagedKVCacheWrapper(
        torch.empty(256 << 20, dtype=torch.uint8, device=q.device),
        "NHD",
        use_cuda_graph=True,
        qo_indptr_buf=index(0, 0),
        paged_kv_indptr_buf=index(0, 0),
        paged_kv_indices_buf=torch.empty_like(used),
        paged_kv_last_page_len_buf=index(0),
        custom_mask_buf=torch.empty(packed_bytes, dtype=torch.uint8, device=q.device),
        mask_indptr_buf=index(0, 0),
        backend="fa2",
    )
    wrapper.plan(
        index(0, len(q)),
        index(0, len(used)),
        used,
        index((num_keys - 1) % 64 + 1),
        q.shape[1],
        keys.shape[1],
        q.shape[2],
        64,
        custom_mask=visible.flatten(),
        sm_scale=scale,
        q_data_type=q.dtype,
        kv_data_type=keys.dtype,
    )
    out = torch.empty_like(q)
    paged = tuple(cached.view(-1, 64, *cached.shape[1:]) for cached in (keys, values))

    def run() -> torch.Tensor:
        wrapper.run(q, paged, out=out)
        return out

    run()
    return Provider("FlashInfer", run)


def _flex(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
) -> Provider:
    """FlexAttention, compiled; the gathering of pages and its block mask are not timed."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    k, v = (_gather(cached, pages, visible.shape[1]) for cached in (keys, values))
    query = q.transpose(0, 1)[None].contiguous()

    def sees(
        batch: torch.Tensor, head: torch.Tensor, row: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return visible[row, key]

    blocks = create_block_mask(sees, None, None, *visible.shape, device=str(q.device))
    compiled = torch.compile(flex_attention)

    def run() -> torch.Tensor:
        got = compiled(query, k, v, block_mask=blocks, scale=scale, enable_gqa=True)
        return got[0].transpose(0, 1)

    run()
    return Provider("FlexAttention", run)
