"""Put a pre-trained encoder into the box: `python bench/box.py RUN/model`, then `-m mini` is that encoder.

Weights in half precision, one file each, room for 512 pieces; refused above 16 MB, or if halving changes what it says.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from danseo.hub import BOX

POSITIONS, MOST_BYTES, MOST_APART = 512, 16 * 2**20, 0.05
SENTENCE = "대한민국의 수도는 [MASK]이다."


def main(source: Path, name: str = "mini") -> None:
    """Write the folder anew."""
    model = AutoModelForMaskedLM.from_pretrained(source, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    model.config.max_position_embeddings = tokenizer.model_max_length = POSITIONS
    before = logits(model, tokenizer)
    with tempfile.TemporaryDirectory() as made:
        model.half().save_pretrained(made)
        tokenizer.save_pretrained(made)
        size = sum(path.stat().st_size for path in Path(made).iterdir())
        after = logits(AutoModelForMaskedLM.from_pretrained(made, dtype="float32").eval(), tokenizer)
        apart = float((after - before).abs().max())
        if size > MOST_BYTES or apart > MOST_APART:
            sys.exit(f"not put in: {size:,} bytes, and logits up to {apart:.3f} apart")
        shutil.rmtree(BOX / name, ignore_errors=True)
        shutil.copytree(made, BOX / name)
    print(f"{BOX / name}: {size:,} bytes; halving moves logits by at most {apart:.4f}")


def logits(model: Any, tokenizer: Any) -> Any:
    """What the model says of a gap."""
    with torch.no_grad():
        return model(**tokenizer(SENTENCE, return_tensors="pt")).logits


if __name__ == "__main__":
    main(Path(sys.argv[1]))
