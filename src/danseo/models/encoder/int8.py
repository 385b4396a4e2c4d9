"""Int8 inference on CPUs: dynamic quantization of an encoder's linear layers."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from danseo.errors import DanseoError


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, one scale per output; inputs are quantized dynamically."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach().float()
        scales = (weight.abs().amax(dim=1).clamp(min=1e-9) / 127).double()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library plans to move this elsewhere
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if layer.bias is None else layer.bias.detach().float()
        self.packed: Any = torch.ops.quantized.linear_prepack(rounded, bias)
        # Without byte instructions sums of products may overflow unless inputs have seven bits.
        self.seven_bits = not torch.cpu._is_vnni_supported()

    def forward(self, hidden: Tensor) -> Tensor:
        made: Tensor = torch.ops.quantized.linear_dynamic(hidden.float(), self.packed, self.seven_bits)
        return made.to(hidden.dtype)  # bfloat16 where the rest of the network computes in it


def quantize_to_int8(model: Any, device: torch.device) -> None:
    """Replace the linear layers of the body by int8 layers; heads are unchanged."""
    if device.type != "cpu":
        raise DanseoError(f"int8 is for CPUs, and this is {device.type}; use --precision bf16 or --device cpu")
    body = model.base_model
    layers = [(name, layer) for name, layer in body.named_modules() if isinstance(layer, nn.Linear)]
    for name, layer in layers:
        body.set_submodule(name, Int8Linear(layer))
