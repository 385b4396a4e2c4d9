"""Language models that answer in words, proved with real weights: how fast they answer here, and how well.

    make proof-llm GEMMA=FOLDER      # an ordinary checkpoint of Gemma 3 270M; the data in ../shared/data/klue
Speed: batches of NER prompts against model.generate one by one, and weighing the labels of RE against prompt and label
pairs one by one, with equal numbers. Table: every task, prompted without and with shots, on a part of dev.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from measuring import ResultTable

DATA = Path(__file__).parents[2] / "shared" / "data" / "klue"
_BOTH = (("--mode", "likelihood"), ("--mode", "generate"))
_WEIGHED = [(*mode, *shots) for shots in ((), ("--shots", "5")) for mode in _BOTH]
_WRITTEN: list[tuple[str, ...]] = [(), ("--shots", "5")]
_SHORT = ("--set", "max_new_tokens=160")  # a base model often repeats itself until its tokens are used up
RUNS: dict[str, list[tuple[str, ...]]] = {
    "ynat": _WEIGHED,
    "nli": _WEIGHED,
    "sts": _WRITTEN,
    "re": _WEIGHED,
    "ner": [(*_SHORT, *how) for how in _WRITTEN],
    "wos": [(*_SHORT, *how) for how in _WRITTEN],
    "dp": _WRITTEN,
    "mrc": _WRITTEN,
}


def parse_template() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gemma", default=os.environ.get("GEMMA", ""), help="folder of the checkpoint")
    parser.add_argument("--dev", type=int, default=300, help="dev examples per task")
    parser.add_argument("--prompts", type=int, default=200, help="NER prompts of the speed ratio")
    parser.add_argument("--work", type=Path, default=Path("proof-llm"), help="where data and runs go")
    parser.add_argument("--only", choices=["speed", "writing", "weighing", "table"])
    parser.add_argument("--tasks", nargs="*", default=list(RUNS))
    parser.add_argument("--precision", default="auto", help="of the table: auto, bf16 or fp32")
    return parser.parse_args()


def part_of_dev(work: Path, count: int, tasks: list[str]) -> Path:
    """A data folder with all of train and a part of dev: everybody is scored on the same examples."""
    from danseo.data.find import require_file
    from danseo.files import read_bytes
    from danseo.tasks import TASKS

    root = work / f"data-{count}"
    for name in tasks:
        task = TASKS[name]
        folder = root / task.folder
        folder.mkdir(parents=True, exist_ok=True)
        for split in ("train", "dev"):
            text = read_bytes(require_file(task, split, DATA)).decode()
            (folder / task.file(split)).write_text(cut(text, name, count) if split == "dev" else text, "utf-8")
        for other in task.companions:
            (folder / other).write_bytes((DATA / task.folder / other).read_bytes())
    return root


def cut(text: str, name: str, count: int) -> str:
    """The first examples of a dev file."""
    if name in ("ner", "dp"):
        return "\n\n".join(text.split("\n\n")[:count]) + "\n\n"
    document = json.loads(text)
    if name == "mrc":
        left = count
        for entry in document["data"]:
            for paragraph in entry["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][: max(0, left)]
                left -= len(paragraph["qas"])
            entry["paragraphs"] = [paragraph for paragraph in entry["paragraphs"] if paragraph["qas"]]
        document["data"] = [entry for entry in document["data"] if entry["paragraphs"]]
    else:
        document = document[: max(1, count // 8)] if name == "wos" else document[:count]
    return json.dumps(document, ensure_ascii=False)


def speed(options: argparse.Namespace) -> None:
    """The two ratios, in one process."""
    import torch

    table = ResultTable("speed of a language model here", ("work", "one by one, s", "danseo, s", "ratio", "check"))
    if options.only != "weighing":
        table.add(*writing_ratio(options.gemma, options.prompts, torch))
    if options.only != "writing":
        table.add(*weighing_ratio(options.gemma, max(2, options.prompts // 50), torch))


def made(gemma: str, name: str, **settings: Any) -> Any:
    from danseo.config.run import RunConfig
    from danseo.config.train import TrainSettings
    from danseo.models.llm.local_backend import load_local_backend
    from danseo.models.llm.prompted_model import PromptedModel
    from danseo.models.llm.settings import PromptSettings
    from danseo.tasks import TASKS

    train = TrainSettings(precision="fp32")  # in which both ways can be held to the same numbers
    config = RunConfig(
        task=name, model=f"llm:{gemma}", run_type="prompt", prompt=PromptSettings(**settings), train=train
    )
    return PromptedModel(config, TASKS[name], load_local_backend(config, gemma, "cpu"))


def dev_of(name: str, count: int) -> list[Any]:
    from danseo.data.find import require_file
    from danseo.tasks import TASKS

    return TASKS[name].read(require_file(TASKS[name], "dev", DATA))[:count]


def writing_ratio(gemma: str, count: int, torch: Any, tokens: int = 24) -> tuple[object, ...]:
    """Free replies of so many tokens; one by one on a tenth of the prompts, the time scaled up."""
    model = made(gemma, "ner", unconstrained=True, max_new_tokens=tokens)
    here, requests = model.backend, [q.parts[0][1] for q in model.questions(dev_of("ner", count))]
    found: dict[str, str] = {}
    began = time.perf_counter()
    here.complete(requests, [r.guid for r in requests], lambda call: found.__setitem__(call.guid, call.text))
    ours = time.perf_counter() - began
    some = requests[:: max(1, count // 20)]
    began, equal = time.perf_counter(), 0
    for request in some:
        ids = torch.tensor([here.chat.prompt(request.messages)])
        with torch.inference_mode():
            out = here.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False
            )
        equal += here.chat.text(out[0, ids.shape[1] :].tolist()).startswith(found[request.guid])
    theirs = (time.perf_counter() - began) * len(requests) / len(some)
    title = f"{count} NER prompts, {tokens} tokens each (one by one: {len(some)}, scaled)"
    return title, theirs, ours, theirs / ours, f"{equal} of {len(some)} replies equal"


def weighing_ratio(gemma: str, count: int, torch: Any) -> tuple[object, ...]:
    """The 30 labels of RE; one by one for some labels of the first prompt, the time scaled up."""
    model = made(gemma, "re", mode="likelihood")
    examples = dev_of("re", count)
    began = time.perf_counter()
    model.ask(examples)
    ours = time.perf_counter() - began
    here, request = model.backend, model.questions(examples[:1])[0].parts[0][1]
    weights = model.calls.known[request.key(here.identity())].weights
    prompt = here.chat.prompt(request.messages)
    began, worst = time.perf_counter(), 0.0
    some = list(request.choices.items())[::5]
    for label, text in some:
        reply = [*here.chat.reply(text), here.chat.end]
        with torch.inference_mode():
            logits = here.model(torch.tensor([[*prompt, *reply]]), logits_to_keep=len(reply) + 1).logits[0]
        chosen = torch.log_softmax(logits.double(), -1)  # float32 would lose unlikely tokens: 5e-4 for a label
        due = sum(float(chosen[position, token]) for position, token in enumerate(reply))
        worst = max(worst, abs(due - weights[label]))
    theirs = (time.perf_counter() - began) * count * len(request.choices) / len(some)
    title = f"{len(request.choices)} RE labels, {count} prompts of about {len(prompt)} tokens"
    title += f" (one by one: {len(some)} labels of the first, scaled)"
    return title, theirs, ours, theirs / ours, f"largest difference {worst:.1e}"


def table(options: argparse.Namespace) -> None:
    """Every task, prompted."""
    from click.testing import CliRunner

    from danseo.cli import cli

    columns = ("task", "how", "metric", "score", "95 % interval", "n", "failed %", "tokens/s", "seconds")
    table = ResultTable(f"{Path(options.gemma).name}, prompted", columns)
    for name in options.tasks:
        root = part_of_dev(options.work, options.dev, [name])
        for how in RUNS[name]:
            command = ["prompt", name, "-m", f"llm:{options.gemma}", "--data", str(root)]
            command += ["--runs", str(options.work / "runs"), "--json", *how]
            command += [] if options.precision == "auto" else ["--set", f"precision={options.precision}"]
            ended = CliRunner().invoke(cli, command)
            if ended.exception:
                table.add(name, " ".join(how), repr(ended.exception)[:80], *[None] * 6)
                continue
            table.add(name, " ".join(how) or "0 shots", *row_of(json.loads(ended.stdout)))


def row_of(document: dict[str, Any]) -> tuple[object, ...]:
    found = next(s for s in document["scores"]["dev"] if s["id"] == document["headline"])
    ends = found["interval"]
    shown = f"{ends[0]:.1f} – {ends[1]:.1f}" if ends else None
    facts = document["environment"]
    return (
        found["id"],
        found["value"],
        shown,
        found["n"],
        document["replies"]["failed_percent"],
        facts.get("tokens_per_second"),
        facts["seconds"],
    )


def main() -> None:
    options = parse_template()
    if not options.gemma or not DATA.is_dir():
        raise SystemExit("proof_llm: name a checkpoint with --gemma FOLDER; the data is in ../shared/data/klue")
    if options.only != "table":
        speed(options)
    if options.only in (None, "table"):
        table(options)


if __name__ == "__main__":
    main()
