"""Settings of fitting weights, whatever the network."""

from dataclasses import dataclass
from typing import Literal

from danseo.settings.declaring import later, setting


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How the weights are fitted."""

    epochs: float = setting(3, above=0)
    """Passes over the training examples."""
    batch_size: int = setting(32, above=0)
    """Examples per optimiser step, over all processes."""
    batch_tokens: int = setting(8192, above=0)
    """Most padded pieces at a time (on a CPU, what its caches hold); larger batches are split into parts."""
    learning_rate: float = 5e-5
    """Peak rate, reached when the warm-up ends."""
    head_learning_rate: float | None = None
    """Peak rate of the layers above the encoder; None takes learning_rate."""
    schedule: Literal["linear", "cosine", "constant", "hold"] = "linear"
    """How the rate falls after the warm-up; hold keeps it, and falls to 0 over the last fifth."""
    warmup: float = setting(0.1, most=1)
    """Share of the steps in which the rate rises from 0."""
    weight_decay: float = 0.01
    """Decay of weights; biases and norms have none."""
    optimizer: Literal["adamw", "muon"] = later("adamw")
    """muon: orthogonal steps for the matrices of the layers, as long as AdamW's, which has all the rest."""
    beta2: float = setting(0.999, most=1)
    """AdamW's memory of squared gradients."""
    clip: float = 1.0
    """Longest gradient; 0 never clips."""
    evaluations: int = 2
    """Evaluations per epoch."""
    monitor: str = "headline"
    """The metric that picks the best checkpoint, by id; headline is the task's first."""
    patience: int | None = None
    """Stop after this many evaluations without a better score; None never stops."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """auto measures on this device and remembers; for short work bf16, or fp16 without it, on GPUs, else fp32."""
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """auto measures on this device and remembers; for short work sdpa where the encoder has it. Flash: NVIDIA only."""
    freeze: str = "none"
    """none, encoder (only the head learns), embeddings, or a number: embeddings and that many lowest layers."""
    layer_decay: float = setting(1.0, most=1)
    """Each layer's rate as a share of that of the layer above it; the top layer has the full one, as has the head."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory."""
    swa_start: float | None = None
    """Average the weights from this epoch on (0 is the start); None does not."""
    swa_every: int = 0
    """Steps between the averaged weights; 0 takes those at the end of each epoch."""
    swa_learning_rate: float | None = None
    """Constant rate while averaging; None keeps the schedule."""
    swa_include: Literal["all", "encoder"] = "all"
    """What is averaged: all that learns, or the encoder without its head."""
    ema: float = setting(0.0, most=1)
    """Share of the old average that each step keeps, such as 0.999; 0 does not average."""
    fgm: float = later(0.0)
    """A second pass with the embeddings moved this far along their gradient; 0 is off, 1 common."""
    awp: float = later(0.0, most=1)
    """A second pass with every matrix moved by this share of its norm along its gradient; 0 is off, 0.001 common."""
    select_on: Literal["select", "dev"] = "select"
    """Which dev examples pick the best checkpoint: one half (the other is reported), or all of them."""
    halves: Literal[1, 2] = later(1)
    """How dev is parted: 2 keeps examples of one passage or premise together, as new runs do; 1 goes by guid alone."""
    example_weights: str = later("")
    """Encoders: a CSV of guid,weight (danseo mine writes one); examples are drawn by weight, those not named by 1."""
    augment: str = later("")
    """Examples made of train, by comma: aeda (signs between words), and of re swap (entities), inverse (relations)."""
    threads: int = setting(0, incidental=True)
    """CPU threads; 0 leaves it to torch."""
    exact: bool = later(False)
    """GPU: matrix products of fp32 in full; else their factors are rounded to TF32, which is faster."""
    deterministic: bool = later(False)
    """GPU: only algorithms that take sums in a fixed order; slower, and an operation that has none ends the run."""
