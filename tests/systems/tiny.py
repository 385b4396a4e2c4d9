"""A tiny random GLiNER on a tiny DeBERTa."""

from pathlib import Path

from tests.tiny import tiny_encoder

SMALL = {"boundary_dim": 16, "pair_dim": 16, "content_dim": 8, "record_dim": 16, "multihead_pair_compat_heads": 2}


def tiny_gliner(folder: Path, sample: Path) -> Path:
    """A checkpoint of the boundary architecture."""
    import torch
    from gliner2 import AutoExtractor
    from gliner2.configuration import ExtractorConfig
    from transformers import AutoConfig, AutoTokenizer

    encoder = tiny_encoder(folder / "encoder", sample, "deberta-v2")
    config = ExtractorConfig(model_name=str(encoder), architecture="boundary", boundary_head=SMALL)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        extractor = AutoExtractor.from_config(
            config, encoder_config=AutoConfig.from_pretrained(encoder), tokenizer=AutoTokenizer.from_pretrained(encoder)
        )
    extractor.save_pretrained(folder / "gliner")
    extractor.processor.tokenizer.save_pretrained(folder / "gliner")
    return folder / "gliner"
