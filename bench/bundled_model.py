"""Bundle a pre-trained encoder: `python bench/bundled_model.py RUN/model`, then `-m mini` is that encoder.

Weights in half precision, one file each, 512 positions; refused above 16 MB, or if half precision changes its logits.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from danseo.hub import BUNDLED_MODEL_FOLDER

POSITIONS, MAX_BYTES, MAX_DIFFERENCE = 512, 16 * 2**20, 0.05
SENTENCE = "대한민국의 수도는 [MASK]이다."


def main(source: Path, name: str = "mini") -> None:
    """Write the folder of the bundled model."""
    model = AutoModelForMaskedLM.from_pretrained(source, dtype="float32").eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    model.config.max_position_embeddings = tokenizer.model_max_length = POSITIONS
    before = compute_logits(model, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        model.half().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        after = compute_logits(AutoModelForMaskedLM.from_pretrained(folder, dtype="float32").eval(), tokenizer)
        difference = float((after - before).abs().max())
        if size > MAX_BYTES or difference > MAX_DIFFERENCE:
            sys.exit(f"not bundled: {size:,} bytes, logits differ by up to {difference:.3f}")
        shutil.rmtree(BUNDLED_MODEL_FOLDER / name, ignore_errors=True)
        shutil.copytree(folder, BUNDLED_MODEL_FOLDER / name)
    print(f"{BUNDLED_MODEL_FOLDER / name}: {size:,} bytes; half precision changes logits by at most {difference:.4f}")


def compute_logits(model: Any, tokenizer: Any) -> Any:
    """Return the logits of a sentence with a gap."""
    with torch.no_grad():
        return model(**tokenizer(SENTENCE, return_tensors="pt")).logits


if __name__ == "__main__":
    main(Path(sys.argv[1]))
