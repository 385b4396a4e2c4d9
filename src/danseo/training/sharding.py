"""Divide the weights, gradients and moments of a training among its processes (FSDP2).

The steps run on a copy of the network whose weights are divided. The network itself has no weights meanwhile; it gets
them for evaluations and at the end, so that everything else works as with one process.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config.train import OptimizationSettings, TrainSettings
from danseo.errors import DanseoError
from danseo.training.network import TrainableNetwork
from danseo.training.training_loop import Engine


def is_sharded(config: OptimizationSettings, world: int) -> bool:
    """Return whether a training is divided; one process has nothing to divide."""
    return isinstance(config, TrainSettings) and config.sharding == "full" and world > 1


class Shards:
    """A network for steps with divided weights, and the same network for everything else."""

    def __init__(self, engine: Engine) -> None:
        if engine.mode.precision == "fp16":  # chosen by the device
            raise DanseoError("train.sharding = full does not work in fp16; use --precision fp32")
        self.whole, self.workers = engine.network, engine.workers
        is_half = engine.mode.precision == "bf16"
        self.dtype = torch.bfloat16 if is_half and self.whole.gathers_half else None
        tensors = [*self.whole.parameters(), *self.whole.buffers()]
        self.network = copy.deepcopy(self.whole, {id(tensor): tensor for tensor in tensors})
        self._divide(torch.bfloat16 if is_half else None)
        self.empty_whole()
        self.whole.to(self.workers.device)  # its buffers; the weights come later
        self.engine = replace(engine, network=self.network, is_sharded=True, waits_for_shards=False)

    def _divide(self, dtype: torch.dtype | None) -> None:
        """Divide layer by layer; weights that learn are stored in float32 and computed in the dtype."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(self.workers.device.type, (self.workers.world,))
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for module in (*find_layers(self.network), self.network):
            for weight in module.parameters():
                if weight.requires_grad and not hasattr(weight, "full_tensor"):
                    weight.data = weight.data.float()
            fully_shard(module, mesh=mesh, mp_policy=policy)

    @torch.no_grad()
    def fill_whole(self) -> None:
        """Give the whole network the weights of all processes; all processes must call it."""
        own = dict(self.whole.named_parameters())
        for name, weight in self.network.named_parameters():
            full = _gather(weight)
            is_stored_half = self.dtype is not None and full.is_floating_point() and weight.requires_grad
            own[name].data = full.to(self.dtype) if is_stored_half else full.clone()

    def empty_whole(self) -> None:
        """Free the weights of the whole network."""
        for weight in self.whole.parameters():
            weight.data = weight.data.new_empty(0)

    @contextmanager
    def use_whole(self) -> Iterator[None]:
        """Give the whole network its weights inside the block."""
        self.fill_whole()
        try:
            yield
        finally:
            self.empty_whole()

    @torch.no_grad()
    def gather_weights(self, *, learning_only: bool) -> dict[str, Tensor]:
        """Return the weights on the CPU of rank 0, and nothing on the others; all processes must call it."""
        found: dict[str, Tensor] = {}
        for name, weight in self.network.named_parameters():
            if learning_only and not weight.requires_grad:
                continue
            full = _gather(weight)
            if self.workers.is_first:
                found[name] = full.cpu().clone()
        if self.workers.is_first and not learning_only:
            names = {name for name, _ in self.whole.named_parameters(remove_duplicate=False)}
            state = self.whole.state_dict(keep_vars=True)
            found |= {name: value.cpu().clone() for name, value in state.items() if name not in names}
        return found


def _gather(weight: Any) -> Tensor:
    """Return the whole tensor of a divided weight."""
    full: Tensor = weight.full_tensor()
    return full


def find_layers(network: TrainableNetwork) -> list[nn.Module]:
    """Return the layers of a model of transformers: the list of modules that has as many as its configuration says."""
    count = getattr(network.model.config, "num_hidden_layers", 0)
    lists = (module for module in network.modules() if isinstance(module, nn.ModuleList) and len(module) == count)
    return list(next(lists, []))


def save_tensors(folder: Path, tensors: dict[str, Any]) -> None:
    """Write tensors into safetensors files of a folder: every process its own parts."""
    checkpoint: Any = import_module("torch.distributed.checkpoint")
    writer = checkpoint.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    checkpoint.save(tensors, storage_writer=writer)


def load_tensors(folder: Path, tensors: dict[str, Any], world: int) -> None:
    """Read tensors in place from the safetensors files of a folder, however many processes wrote them."""
    checkpoint: Any = import_module("torch.distributed.checkpoint")
    checkpoint.load(tensors, storage_reader=checkpoint.HuggingFaceStorageReader(str(folder)), no_dist=world == 1)
