"""Take heads out of a model for good: smaller matrices, fewer operations."""

from __future__ import annotations

import copy

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from helpers.errors import InputError, ModelError
from helpers.model.sites import FUSED, Site, sites

# Their attention reads the number of heads off the width of its projections; the others keep it
# in positions, splits or cached biases, where smaller matrices would not be enough.
REMOVABLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "modernbert")
QUERIES_AND_KEYS = ("query", "key", "q_lin", "k_lin")


def remove_heads(model: nn.Module, keep: Bool[np.ndarray, "layer head"]) -> nn.Module:
    """Return a copy of a model without the heads that ``keep`` is false for.

    The rows of the query, key and value projections and the columns of the output projection
    that belong to a removed head are gone.  A layer without any head keeps the bias of its
    output projection.  The model gives what it gives under a `head_mask` of ``keep``, up to
    rounding; it no longer fits its own configuration, so it cannot be saved and loaded again.

    Raises:
        InputError: ``keep`` has another shape than the model's layers and heads.
        ModelError: a family whose attention needs its full number of heads.
    """
    kind = {module.config.model_type for module in model.modules() if hasattr(module, "config")}
    if not kind <= set(REMOVABLE):
        raise ModelError(
            f"heads of {', '.join(sorted(kind))} models cannot be removed, only masked; those of "
            f"{', '.join(REMOVABLE)} can"
        )
    smaller = copy.deepcopy(model)
    layers = sites(smaller)
    keep = np.asarray(keep, bool)
    if keep.shape != (len(layers), layers[0].heads):
        raise InputError(
            f"keep has the shape {keep.shape}; this model needs {(len(layers), layers[0].heads)}"
        )
    for site, kept in zip(layers, keep, strict=True):
        if not kept.all():
            _shrink(smaller, site, torch.from_numpy(kept).repeat_interleave(site.width))
    return smaller


def _shrink(model: nn.Module, site: Site, kept: Bool[Tensor, " feature"]) -> None:
    """Make the projections of one layer smaller, in place; ``kept`` is over ``[head * width]``."""
    _keep(site.output, kept, dim=1)
    if not kept.any():
        _replace(model, site.inner, _NoHeads(site.output if site.inner is site.attention else None))
        return
    if site.values_name in FUSED:
        _keep(site.values, kept.repeat(3), dim=0)
        return
    for name, part in site.inner.named_children():
        if part is site.values or name in QUERIES_AND_KEYS:
            _keep(part, kept, dim=0)


def _keep(linear: nn.Module, kept: Bool[Tensor, " feature"], *, dim: int) -> None:
    """Keep some outputs (``dim`` 0) or inputs (``dim`` 1) of a linear layer, in place."""
    rows = kept.nonzero().squeeze(1).to(linear.weight.device)
    weight = linear.weight
    linear.weight = nn.Parameter(weight.detach().index_select(dim, rows), weight.requires_grad)
    if dim == 0 and linear.bias is not None:
        bias = linear.bias
        linear.bias = nn.Parameter(bias.detach()[rows], bias.requires_grad)
    linear.out_features, linear.in_features = linear.weight.shape


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    path = next(path for path, module in model.named_modules() if module is old)
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, new)


class _NoHeads(nn.Module):
    """The attention of a layer that has lost all heads: nothing but its projection's bias."""

    def __init__(self, output: nn.Module | None) -> None:
        super().__init__()
        self.output = output or nn.Identity()

    def forward(self, hidden_states: Tensor, *_args: object, **_kwargs: object) -> tuple:
        """Return the projection of no head at all, and no map."""
        return self.output(hidden_states[..., :0]), None
