"""An encoder whose linear layers compute in bytes: for predicting on CPUs, where it is several times as fast."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from danseo.errors import DanseoError


class ByteLinear(nn.Module):
    """A linear layer with weights in bytes, one scale per output; what comes in is rounded on the way."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach()
        scales = (weight.abs().amax(dim=1).clamp(min=1e-9) / 127).double()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library plans to move this elsewhere
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if layer.bias is None else layer.bias.detach()
        self.packed: Any = torch.ops.quantized.linear_prepack(rounded, bias)
        # Without byte instructions sums of products may overflow unless inputs have seven bits.
        self.seven_bits = not torch.cpu._is_vnni_supported()

    def forward(self, hidden: Tensor) -> Tensor:
        made: Tensor = torch.ops.quantized.linear_dynamic(hidden, self.packed, self.seven_bits)
        return made


def to_bytes(model: Any, device: torch.device) -> None:
    """Put byte layers in the place of the body's linear layers; heads stay as they are."""
    if device.type != "cpu":
        raise DanseoError(f"int8 is for CPUs, and this is {device.type}; use --precision bf16 or --device cpu")
    body = model.base_model
    layers = [(name, layer) for name, layer in body.named_modules() if isinstance(layer, nn.Linear)]
    for name, layer in layers:
        body.set_submodule(name, ByteLinear(layer))
