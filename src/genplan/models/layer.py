"""The transformer layer of the denoisers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import linear

Pair = tuple[Tensor, Tensor]
"""Keys and values, [B, heads, N, D / heads]; or a module's weight and bias."""


class Layer(nn.Module):
    """Attention over the plan and its past; then attention to the scene, beside a network per step.

    Its weights are gathered once per plan and handed to `forward`: to find them through modules at every iteration
    takes nearly as long as to multiply with them, when there is one plan to make.
    """

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = num_heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(2))
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.mix = nn.Linear(hidden_size, hidden_size)
        self.query_and_ffn_in = nn.Linear(hidden_size, 5 * hidden_size)  # the query of the scene; four hidden
        self.out = nn.Linear(5 * hidden_size, hidden_size)

    def weights(self) -> list[Pair]:
        """Weight and bias of each module, in the order in which they are used."""
        modules = (self.norms[0], self.qkv, self.mix, self.norms[1], self.query_and_ffn_in, self.out)
        return [(module.weight, module.bias) for module in modules]  # type: ignore[misc]

    def forward(
        self, x: Tensor, weights: list[Pair], scene_kv: Pair, scene_mask: Tensor | None = None,
        history_kv: Pair | None = None, mask: Tensor | None = None, query_step: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """x [B, H, D]; scene_kv [M, heads, N, d], where B is a multiple of M: rows in turn share a scene.

        With `query_step` [B], the answer of that step alone, [B, 1, D].
        """
        norm_1, qkv, mix, norm_2, query_and_ffn_in, out = weights
        batch, length, width = x.shape
        drop = self.dropout if self.training else 0.0
        y = linear(torch.layer_norm(x, (width,), *norm_1), *qkv)
        q, k, v = y.reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind()
        if history_kv is not None:
            k, v = torch.cat([history_kv[0], k], 2), torch.cat([history_kv[1], v], 2)
        if query_step is not None:
            rows = torch.arange(batch, device=x.device)
            x, q = x[rows, query_step, None], q[rows, :, query_step, None]
            scene_mask = None if scene_mask is None else scene_mask[:, :, ::length]  # the same for all steps of a plan
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop)
        x = x + linear(mixed.transpose(1, 2).flatten(2), *mix)
        # Parts are split and unbound rather than sliced: a slice's gradient would be a tensor of zeros as large as all.
        y = linear(torch.layer_norm(x, (width,), *norm_2), *query_and_ffn_in)
        query, ffn = torch.split(y, [width, 4 * width], -1)
        query = query.reshape(scene_kv[0].shape[0], -1, self.heads, width // self.heads).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(query, *scene_kv, attn_mask=scene_mask, dropout_p=drop)
        out_attended, out_ffn = torch.split(out[0], [width, 4 * width], 1)  # one product of both, without joining them
        change = linear(attended.transpose(1, 2).reshape(-1, width), out_attended, out[1])
        change = change.addmm(functional.gelu(ffn).flatten(0, 1), out_ffn.t()).view_as(x)
        return x + (functional.dropout(change, drop) if drop else change)


def keys_and_values(projection: nn.Linear, tokens: Tensor, num_heads: int) -> list[Pair]:
    """[B, N, D] -> per layer [B, heads, N, D / heads]; a product each, so that none needs to be copied."""
    width = tokens.shape[-1]
    pairs = zip(torch.split(projection.weight, width), torch.split(projection.bias, width), strict=True)
    shape = (*tokens.shape[:2], num_heads, width // num_heads)
    parts = [linear(tokens, *pair).reshape(shape).transpose(1, 2) for pair in pairs]
    return list(zip(parts[::2], parts[1::2], strict=True))


def attention_mask(shown: Tensor, like: Tensor, before: int = 0, after: int = 0) -> Tensor | None:
    """Bool [B, N] -> [B, before + N + after]: −inf where a token is not to be seen; None if all are."""
    if bool(shown.all()):
        return None
    mask = torch.zeros(shown.shape, device=like.device, dtype=like.dtype).masked_fill_(~shown, -torch.inf)
    return functional.pad(mask, (before, after))
