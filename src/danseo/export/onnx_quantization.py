"""Quantized variants of an ONNX network: dynamic int8, and weights of 8 or 4 bits (MatMulNBits)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from danseo.tasktypes.decoding import Array

FP32 = "fp32"
_BLOCK = (
    32  # weights of a column that share a scale; a matrix with fewer rows or columns, such as a head, stays float32
)
_DOMAIN = "com.microsoft"


def quantize_dynamic(source: Path, target: Path) -> None:
    """Quantize the weights of matrix products to int8, one scale per column; inputs are quantized at run time."""
    import logging

    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as quantize

    logging.getLogger().setLevel(logging.ERROR)
    quantize(source, target, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8)


def quantize_weights(source: Path, target: Path, bits: int) -> None:
    """Store the weights of matrix products in so many bits, and embeddings in 8; inputs stay float32."""
    import onnx

    model = onnx.load(source)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights:
            _replace_product(graph, node, onnx.numpy_helper.to_array(weights[node.input[1]]), bits)
        elif node.op_type == "Gather" and node.input[0] in weights:
            _replace_lookup(graph, node, onnx.numpy_helper.to_array(weights[node.input[0]]))
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    onnx.save(model, target)


VARIANTS: dict[str, Callable[[Path, Path], None]] = {
    "int8": quantize_dynamic,
    "int8-weights": lambda source, target: quantize_weights(source, target, 8),
    "int4": lambda source, target: quantize_weights(source, target, 4),
}
"""Variant -> the function that writes it from the float32 network."""


def quantize_blocks(rows: Array, bits: int) -> tuple[Array, Array, Array]:
    """Return codes, scales and zero points of every block of a row; the last block is filled up with zeros."""
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % _BLOCK))).astype(np.float32)
    blocks = padded.reshape(len(rows), -1, _BLOCK)
    low, high = np.minimum(blocks.min(axis=2), 0), np.maximum(blocks.max(axis=2), 0)
    scales = np.maximum((high - low) / (2**bits - 1), np.float32(1e-12))
    zeros = np.rint(-low / scales)
    codes = np.rint(blocks / scales[..., None]) + zeros[..., None]
    return np.clip(codes, 0, 2**bits - 1).astype(np.uint8), scales, zeros.astype(np.uint8)


def pack_bits(codes: Array, bits: int) -> Array:
    """Pack codes of 4 bits in pairs along the last axis, the first of a pair in the lower half of the byte."""
    if bits == 8:
        return codes
    even = np.pad(codes, (*[(0, 0)] * (codes.ndim - 1), (0, codes.shape[-1] % 2)))
    packed: Array = even[..., ::2] | even[..., 1::2] << 4
    return packed


def _replace_product(graph: Any, node: Any, weight: Array, bits: int) -> None:
    """Turn a matrix product in place into MatMulNBits; a bias is added as before."""
    from onnx.helper import get_node_attr_value, make_node

    given = {attribute.name: get_node_attr_value(node, attribute.name) for attribute in node.attribute}
    if min(weight.shape) < _BLOCK or given.get("transA", 0) or {given.get("alpha", 1), given.get("beta", 1)} != {1}:
        return
    columns = weight if given.get("transB") else weight.T
    codes, scales, zeros = quantize_blocks(columns, bits)
    values = {"codes": pack_bits(codes, bits), "scales": scales, "zeros": pack_bits(zeros, bits)}
    names = [_add_tensor(graph, f"{node.input[1]}.{node.op_type}.{name}", value) for name, value in values.items()]
    inputs = [node.input[0], *names, *(["", node.input[2]] if len(node.input) > 2 else [])]
    sizes: dict[str, Any] = {"K": columns.shape[1], "N": columns.shape[0], "bits": bits, "block_size": _BLOCK}
    node.CopyFrom(make_node("MatMulNBits", inputs, node.output, node.name, domain=_DOMAIN, **sizes))


def _replace_lookup(graph: Any, node: Any, table: Array) -> None:
    """Turn the lookup of embeddings in place into one of 8-bit embeddings."""
    from onnx.helper import get_node_attr_value, make_node

    axis = [get_node_attr_value(node, each.name) for each in node.attribute if each.name == "axis"]
    if min(table.shape) < _BLOCK or table.dtype != np.float32 or axis not in ([], [0]) or table.shape[1] % _BLOCK:
        return
    codes, scales, zeros = quantize_blocks(table, 8)
    values = {"codes": codes.reshape(table.shape), "scales": scales, "zeros": zeros}
    names = [_add_tensor(graph, f"{node.input[0]}.{node.op_type}.{name}", value) for name, value in values.items()]
    inputs = [names[0], node.input[1], *names[1:]]
    sizes: dict[str, Any] = {"bits": 8, "block_size": _BLOCK, "quantize_axis": 1}
    node.CopyFrom(make_node("GatherBlockQuantized", inputs, node.output, node.name, domain=_DOMAIN, **sizes))


def _add_tensor(graph: Any, name: str, values: Array) -> str:
    """Add constants to a graph once and return their name."""
    import onnx

    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
    return name
