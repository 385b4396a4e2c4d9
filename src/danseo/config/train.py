"""Settings of training weights: of every training, of training on labelled examples, and of LoRA adapters."""

from typing import Annotated, Literal

from danseo.config.base import INCIDENTAL, Amount, Count, PositiveAmount, PositiveCount, Ratio, Section, Text


class OptimizationSettings(Section):
    """What every training has: on labelled examples, on text, on mentions."""

    epochs: PositiveAmount = 3.0
    """Number of passes over the training examples."""
    batch_size: PositiveCount = 32
    """Examples per optimiser step, over all processes."""
    max_batch_tokens: PositiveCount = 8192
    """Maximum number of padded tokens in one pass; larger batches are split, with the same gradient."""
    learning_rate: Amount = 5e-5
    """Peak learning rate, at the end of the warm-up."""
    head_learning_rate: Amount | None = None
    """Peak learning rate of the layers above the encoder; none takes learning_rate."""
    lr_scheduler_type: Literal[
        "linear", "cosine", "cosine_with_restarts", "cosine_annealing", "constant", "warmup_stable_decay"
    ] = "linear"
    """Learning rate after the warm-up; restarts and annealing repeat each epoch, stable_decay falls at the end."""
    lr_cycles_per_epoch: PositiveCount = 1
    """Times that cosine_with_restarts falls within an epoch, and that cosine_annealing falls or rises."""
    min_lr_rate: Ratio = 0.0
    """Lowest learning rate of a schedule as a ratio of the peak."""
    warmup_ratio: Ratio = 0.1
    """Ratio of the steps in which the learning rate rises from 0."""
    weight_decay: Amount = 0.01
    """Weight decay; biases and norms have none."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: orthogonal updates for the weight matrices of the layers; AdamW for the other weights."""
    adam_beta2: Ratio = 0.999
    """Decay of AdamW's average of squared gradients."""
    max_grad_norm: Amount = 1.0
    """Maximum norm of the gradient; 0 never clips."""
    patience: Count | None = None
    """Stop after this many evaluations without a better score; none never stops."""
    early_stopping_threshold: Amount = 0.0
    """Minimum improvement that counts as a better score for patience."""
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Numeric precision; auto chooses by the device and the size of the model."""
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2"] = "auto"
    """Attention; auto reads texts without padding if the encoder can. flash_attention_2: NVIDIA only."""
    freeze: Text = "none"
    """none, encoder (only the head learns), embeddings, or a number: embeddings and that many lowest layers."""
    layer_lr_decay: Ratio = 1.0
    """Learning rate of each layer as a ratio of that of the layer above it."""
    gradient_checkpointing: bool = False
    """Recompute activations to save memory."""
    swa_start_epoch: Amount | None = None
    """Average the weights from this epoch on (0 is the start); none does not."""
    swa_every_steps: Count = 0
    """Steps between two averaged weights; 0 takes those at the end of each epoch."""
    swa_lr: Amount | None = None
    """Constant learning rate while averaging; none keeps the schedule."""
    swa_include: Literal["all", "encoder"] = "all"
    """Weights that are averaged: all that learn, or the encoder without its head."""
    ema_decay: Ratio = 0.0
    """Decay of the moving average of the weights, such as 0.999; 0 does not average."""
    num_threads: Annotated[Count, INCIDENTAL] = 0
    """CPU threads; 0 takes torch's default."""
    allow_tf32: bool = True
    """GPU: round the factors of fp32 matrix products to TF32, which is faster."""
    full_determinism: bool = False
    """GPU: only deterministic algorithms; slower, and an operation that has none ends the run."""


class TrainSettings(OptimizationSettings):
    """Training on labelled examples."""

    sharding: Annotated[Literal["none", "full"], INCIDENTAL] = "none"
    """full: each process stores a part of the weights, gradients and optimizer state (FSDP2), for large models."""
    max_length: PositiveCount = 128
    """Maximum input length in tokens, special tokens included."""
    evals_per_epoch: Count = 2
    """Evaluations per epoch."""
    metric_for_best_model: Text = "headline"
    """The metric that selects the best checkpoint, by id; headline is the first of the task."""
    select_on: Literal["select", "dev"] = "select"
    """Choose the best checkpoint on the select split of dev (the other one is reported), or on the whole dev set."""
    fgm_epsilon: Amount = 0.0
    """Second pass with the embeddings moved this far along their gradient (FGM); 0 is off, 1 common."""
    awp_epsilon: Ratio = 0.0
    """Second pass with every matrix moved by this ratio of its norm along the gradient (AWP); 0 is off, 0.001 usual."""
    example_weights: Text = ""
    """Encoders: a CSV of guid,weight (danseo mine writes one); examples are sampled by weight, others have 1."""
    distill_targets: Text = ""
    """Encoders: a folder of soft targets that `danseo distill` makes; its unlabelled text is learned too."""
    distill_weight: Ratio = 0.8
    """distill_targets: ratio of the loss that compares with the teacher; the rest is the loss of the labels."""
    distill_temperature: PositiveAmount = 1.0
    """distill_targets: divides the logits of teacher and student; above 1, less likely labels count more."""
    augment: Text = ""
    """Extra examples of train, by comma: noise or perturbations (danseo docs stress), aeda; for re swap, inverse."""


class LoraSettings(Section):
    """Low-rank adapters (LoRA)."""

    lora_rank: Count = 0
    """Rank of the LoRA adapters that learn in place of the model's weights; 0 trains all weights."""
    lora_alpha: Count = 32
    """Scale of the LoRA adapters, divided by their rank."""
    lora_dropout: Ratio = 0.0
    """Dropout before the LoRA adapters."""
