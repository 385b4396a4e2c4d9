"""Encoders that name words by their first piece, as NuNER 1 and 2 do: bytes, and a space before every word."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from danseo.experiment import run_experiment
from danseo.models.encoder.heads.tagging import keep_first_tokens
from danseo.models.registry import load_model
from danseo.records import TextExample
from tests.tiny import quick_config, read_split, tiny_encoder


@pytest.fixture(scope="module")
def nuner(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A random RoBERTa whose tokenizer is that of NuNER: bytes, and a space before the first word too."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    folder = tiny_encoder(tmp_path_factory.mktemp("nuner"), sample, "roberta")
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([example.text for example in read_split(sample, "ner", "train", 60)], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    names = ("bos", "pad", "eos", "unk", "mask")
    options = {f"{name}_token": token for name, token in zip(names, specials, strict=True)}
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", add_prefix_space=True, **options
    )
    made.save_pretrained(folder)
    return folder


def test_the_first_piece_of_a_word_stands_for_all_of_it():
    text = " 홍길동은 😀서울 갔다"
    offsets = [(1, 3), (3, 5), (0, 0), (6, 7), (7, 9), (10, 12)]
    assert keep_first_tokens(offsets, text) == [(1, 5), (0, 0), (0, 0), (6, 9), (0, 0), (10, 12)]


@pytest.mark.parametrize("pieces", ["all", "first"])
def test_a_nuner_is_trained_as_an_encoder(nuner: Path, sample: Path, tmp_path: Path, pieces: str):
    config = quick_config(
        "ner", str(nuner), max_train_samples=40, evals_per_epoch=1, label_first_token=pieces == "first"
    )
    run = run_experiment(config, sample, tmp_path, quiet=True)
    model = load_model(run)
    text = "홍길동은 서울 😀갔다"
    (found,) = model.predict([TextExample("a", text, ())])
    assert len(found.answer) == len(text)
    if pieces == "first":
        for word in ((0, 4), (5, 7), (8, 11)):
            assert len({tag[2:] for tag in found.answer[slice(*word)]}) == 1, "a word has one type"
