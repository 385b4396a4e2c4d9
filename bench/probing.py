"""Speed and memory of probing against the old way, each in a process of its own, on the same windows.

    python bench/probing.py [--seconds N] [--items N] [--text FILE] [--precision fp32]

A random BERT of 12 layers × 768 with 32k pieces fills gaps in texts of 200-400 characters. The old way is
`pipeline("fill-mask")` with its 50 best guesses, Kiwi on each guess, once for @1 and once again for @5. A few gaps
show how many there is time for; beside the ratio stands what the speed of a bare matrix product would reach.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Limit, ResultTable, matrix_peak, say

from danseo.mlm.probing.items import ProbeItem, read_bundled_items, read_items, write_items
from danseo.mlm.probing.probe import ProbeOptions, probe_model
from danseo.mlm.probing.score import clean_token, match_lenient
from danseo.models.checkpoint import quiet_transformers
from danseo.models.new_encoder import EncoderSize, make_encoder_config, train_tokenizer
from danseo.text.documents import read_documents

ROOT = Path(__file__).parents[1]
REAL_TEXT = ROOT.parent / "shared" / "data" / "text" / "kowiki" / "kowiki_valid.txt.gz"
SIZE = EncoderSize(layers=12, hidden=768, heads=12, vocabulary=32000, positions=512)
BATCH = 32  # of the old way
FEW = 16  # gaps that show how many there is time for
COST = 8  # times what danseo takes for a gap: all ways together, with something to spare


def texts(path: Path) -> Iterator[str]:
    """Texts of 200-400 characters: from real articles where they are there, else from the built-in probes."""
    if path.is_file():
        for document in read_documents("bench", path):
            yield from (line[:400] for line in document.text.split("\n") if len(line) >= 200)
    else:
        found = sorted({item.text for item in (*read_bundled_items("dev"), *read_bundled_items("test"))})
        for number in range(2000):
            yield " ".join(random.Random(number).sample(found, 3))[: 200 + number % 200]


def gaps(path: Path, count: int) -> list[ProbeItem]:
    """One gap per text: a word from its middle."""
    items: list[ProbeItem] = []
    for text in texts(path):
        words = [match for match in re.finditer(r"[가-힣]{2,}", text) if "[" not in text]
        if words and len(items) < count:
            word = words[len(words) // 2]
            name = f"b{len(items)}"
            items.append(
                ProbeItem(name, "bench", name, "repeated", text, word.span(), word[0], None, None, "none", "bench")
            )
    return items


def make_checkpoint(folder: Path, path: Path) -> Any:
    """A random model; its tokenizer comes back."""
    import torch

    tokenizer = train_tokenizer(texts(path), "bert", SIZE)
    torch.manual_seed(0)
    model = quiet_transformers().AutoModelForMaskedLM.from_config(make_encoder_config("bert", SIZE, tokenizer))
    counts = Counter(syllable for text in texts(path) for syllable in text if "가" <= syllable <= "힣")
    common = tokenizer.convert_tokens_to_ids([syllable for syllable, _ in counts.most_common(150)])
    model.cls.predictions.bias.data[common] += 1.0  # so that a random model hits something, and scores can differ
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def peak() -> float:
    """The most memory this program has had, in MB; the usual ru_maxrss counts the process that started it too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found, "memory is read from /proc, which only Linux has"
    return int(found[1]) / 1024


def danseo_way(folder: Path, items: list[ProbeItem], precision: str) -> dict[str, Any]:
    from danseo.models.mlm.masked_model import MaskedModel

    masked = MaskedModel.load(str(folder), "cpu", precision)
    loaded, start, work = peak(), time.perf_counter(), time.process_time()
    result = probe_model(masked, items, ProbeOptions(quick=True, spelling="separate"))
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - work,
        "filter": result.seconds["noun_filter"],
        "loaded": loaded,
        "lenient@1": result.value("repeated", "lenient@1"),
        "lenient@5": result.value("repeated", "lenient@5"),
    }


def old_way(folder: Path, items: list[ProbeItem], precision: str) -> dict[str, Any]:
    from kiwipiepy import Kiwi
    from transformers import pipeline

    fill: Any = pipeline("fill-mask", model=str(folder), device="cpu")
    kiwi = Kiwi(num_workers=1)
    kiwi.tokenize("모형을 불러온다")
    loaded, start, work = peak(), time.perf_counter(), time.process_time()
    inputs = [f"{item.left}{fill.tokenizer.mask_token}{item.right}" for item in items]
    scores: dict[str, Any] = {}
    for cut in (1, 5):
        hits = 0
        for item, guesses in zip(items, fill(inputs, top_k=50, batch_size=BATCH), strict=True):
            words = (clean_token(guess["token_str"]) for guess in guesses)
            nouns = [w for w in words if w and any(t.tag in ("NNG", "NNP") for t in kiwi.tokenize(w))][:cut]
            hits += any(match_lenient(item.target, word) for word in nouns)
        scores[f"lenient@{cut}"] = hits / len(items)
    seconds = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - work}
    return {**seconds, "loaded": loaded, **scores}


OFFLINE_HINT = {"danseo": danseo_way, "old": old_way}


def child(way: str, folder: Path, precision: str, cache: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--way", way, "--folder", str(folder), "--precision", precision]
    variables = {**os.environ, "DANSEO_CACHE": str(cache), "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    if done.returncode:
        sys.exit(f"bench: {way} failed: {(done.stderr.strip() or 'no message').splitlines()[-1][:200]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def fitting_count(folder: Path, items: list[ProbeItem], precision: str, cache: Path, limit: Limit) -> int:
    """How many gaps there is time for, by the speed at a few."""
    write_items(folder / "items.jsonl", items[:FEW])
    first = child("danseo", folder, precision, cache)
    say(f"the noun filter, once per vocabulary: {first['filter']:.1f} s")
    speed = FEW / (first["seconds"] - first["filter"])
    return min(len(items), max(FEW, int(speed * limit.left / COST)))


def add_row(table: ResultTable, way: str, found: dict[str, Any], old: dict[str, Any], pieces: int, most: float) -> None:
    """A way beside the old one."""
    facts = (found["seconds"], found["cpu"], found["peak"], found["peak"] - found["loaded"])
    shares = (100 * pieces / found["seconds"] / most, old["seconds"] / found["seconds"], old["cpu"] / found["cpu"])
    bound = most * old["seconds"] / pieces
    table.add(way, *facts, found["lenient@1"], found["lenient@5"], *shares, None if way == "old" else bound)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--items", type=int, default=500, help="most gaps")
    parser.add_argument("--text", type=Path, default=REAL_TEXT)
    parser.add_argument("--precision", default="fp32", choices=["auto", "fp32", "bf16", "int8"])
    parser.add_argument("--way", choices=OFFLINE_HINT)
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def main() -> None:
    chosen = parsed()
    if chosen.way:  # a process of its own for each way
        items = read_items(chosen.folder / "items.jsonl")
        print(json.dumps({**OFFLINE_HINT[chosen.way](chosen.folder, items, chosen.precision), "peak": peak()}))
        return
    limit = Limit(chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="danseo-bench-") as position:
        folder, cache = Path(position, "model"), Path(position, "cache")
        tokenizer = make_checkpoint(folder, chosen.text)
        items = gaps(chosen.text, chosen.items)
        items = items[: fitting_count(folder, items, chosen.precision, cache, limit)]
        write_items(folder / "items.jsonl", items)
        pieces = sum(len(tokenizer(item.text)["input_ids"]) for item in items)
        results = compared(folder, chosen.precision, cache, len(items), pieces)
    same = all(results["danseo"][key] == results["old"][key] for key in ("lenient@1", "lenient@5"))
    if chosen.precision == "fp32" and not same:
        sys.exit("the scores differ")


def compared(folder: Path, precision: str, cache: Path, count: int, pieces: int) -> dict[str, dict[str, Any]]:
    """Every way on the same gaps, each shown as it comes."""
    reached = matrix_peak()
    most = 1e9 * reached / (2 * SIZE.layers * 12 * SIZE.hidden**2)  # pieces per second: a layer has 12 squares
    columns = ("way", "seconds", "CPU seconds", "peak MB", "MB while probing", "lenient@1", "lenient@5")
    shares = ("% of the peak", "x times as fast", "in CPU seconds", "at most here, float32")
    title = f"{count} gaps, {pieces:,} pieces, 12 × 768; matrix products reach {reached:.0f} GFLOP/s"
    table, results = ResultTable(title, (*columns, *shares)), dict[str, dict[str, Any]]()
    for name in ("old", "danseo", "danseo, int8"):
        results[name] = child(name.split(",")[0], folder, "int8" if "int8" in name else precision, cache)
        add_row(table, name, results[name], results["old"], pieces, most)
    return results


if __name__ == "__main__":
    main()
