"""What a finished run shows: its scores beside the floors, and on which examples they were picked and reported."""

from dataclasses import replace
from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.errors import DanseoError
from danseo.runs.directory import OWN_TASK, Run, task_name

_NAMES = {"report": "report half of dev", "dev": "all of dev"}
_PICKERS = {"dev": "all of dev", "fold": "the fold of train that was left out"}


def run_tables(run: Run) -> list[Table]:
    """The scores on the reported half and on all of dev."""
    scores = run.read_json("scores.json")
    picked, floors = _picked(scores), floors_of(run, scores)
    tables = []
    for split, listed in scores["scores"].items():
        rows: list[tuple[object, ...]] = [
            (s["id"], s["value"], _ends(s["interval"]), s["n"], *(by.get(s["id"]) for by in floors[split].values()))
            for s in listed
        ]
        same = split == "dev" and scores["selected_on"] == "dev"
        note = picked + ("; SELECTED ON THE REPORTED SET" if same and picked else "")
        tables.append(Table(_NAMES[split], ("metric", "score", "95 % interval", "n", *floors[split]), rows, note))
    if "weights" in scores:
        tables.append(_weights_table(scores))
    if "replies" in scores:
        tables.append(_replies_table(scores["replies"]))
    facts = run.read_json("environment.json")
    notes = [tables[-1].note, f"{run.path} ({facts['seconds']:.1f} s on {facts['device']})", *warnings_of(run, scores)]
    tables[-1] = replace(tables[-1], note="\n".join(filter(None, notes)))
    return tables


def _picked(scores: dict[str, Any]) -> str:
    """Which examples picked the checkpoint, or those of the members; a floor has none to pick."""
    if "ensemble" not in scores and "best_step" not in scores:
        return ""
    what = "checkpoints of the members" if "ensemble" in scores else "checkpoint"
    return f"{what} picked on {_PICKERS.get(scores['selected_on'], 'the select half of dev')}"


def floors_of(run: Run, scores: dict[str, Any]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Split -> floor -> metric -> score: answers without a model, and a linear model where it was run on this data."""
    linear = _linear_beside(run)
    found = {}
    for split in scores["scores"]:
        found[split] = dict(scores.get("floors", {}).get(split, {}))  # runs of older versions have none
        if linear and split in linear["scores"]:
            found[split]["linear"] = {s["id"]: s["value"] for s in linear["scores"][split]}
    return found


def _same_task(run: Run, other: Run) -> bool:
    """Whether both are of the same task, also where users describe their own."""
    texts = [path.read_bytes() if (path := each.path / OWN_TASK).is_file() else b"" for each in (run, other)]
    return texts[0] == texts[1]


def _linear_beside(run: Run) -> dict[str, Any] | None:
    """The scores of a finished linear run in the same folder, on the same data."""
    config, facts = run.config, run.read_json("environment.json")
    for path in sorted(run.path.parent.glob(f"{task_name(config.task)}--linear--*/scores.json")):
        other = Run(path.parent)
        try:
            known: dict[str, Any] = other.read_json("scores.json")
            is_comparable = (
                _same_task(run, other)
                and other.config.limit == config.limit
                and other.read_json("environment.json")["data"] == facts["data"]
            )
        except (DanseoError, KeyError):
            continue  # a damaged run is no floor
        if is_comparable and other.config.model == "linear" and other.path.resolve() != run.path.resolve():
            return known
    return None


def warnings_of(run: Run, scores: dict[str, Any]) -> list[str]:
    """What a reader should know before believing the score."""
    split = scores["reported_on"] if scores["reported_on"] in scores["scores"] else "dev"
    floors = scores.get("floors", {}).get(split, {})
    score = next((s["value"] for s in scores["scores"][split] if s["id"] == scores["headline"]), None)
    floor = floors.get("majority", {}).get(scores["headline"])
    if not floors or run.config.model == "majority" or beats(score, floor):
        return []
    shown = "undefined" if score is None else f"{score:.2f}"
    return [
        f"WARNING: {scores['headline']} on the {_NAMES[split]} is {shown}, not better than the most frequent answer "
        f"whatever the input ({floor or 0:.2f})"
    ]


def beats(score: float | None, floor: float | None) -> bool:
    """Whether a score is better than a floor; one that is undefined, as the correlation of a constant, counts as 0."""
    return (score or 0.0) > (floor or 0.0)


def _weights_table(scores: dict[str, Any]) -> Table:
    """Averaged training: the last and the best weights beside the last and the best average."""
    rows: list[tuple[object, ...]] = [
        (name, kept["step"], *(kept[half] for half in ("select", "report", "dev")))
        for name, kept in scores["weights"].items()
    ]
    columns = ("weights", "step", "select half", "report half", "all of dev")
    return Table(f"{scores['monitor']} of the weights kept in weights/", columns, rows)


def _replies_table(replies: dict[str, Any]) -> Table:
    """What became of the replies of a language model: those that failed count as wrong."""
    failed, asked = replies["failed"], replies["asked"]
    rows: list[tuple[object, ...]] = [("failed", f"{failed} of {asked} ({replies['failed_percent']:.2f} %)")]
    if replies["failed_at_first"] != failed:
        first = replies["failed_at_first"]
        rows.append(("failed before they were asked again", f"{first} ({replies['failed_at_first_percent']:.2f} %)"))
    rows += [(name, count) for name, count in replies["classes"].items()]
    rows += [(name.replace("_", " "), count) for name, count in replies.get("fitted", {}).items()]
    return Table("replies", ("what", "count"), rows)


def _ends(interval: list[float] | None) -> str | None:
    return shown_interval(*interval) if interval else None


def run_document(run: Run) -> dict[str, Any]:
    """The run as one JSON document."""
    scores = run.read_json("scores.json")
    return {
        "run": str(run.path),
        **scores,
        "floors": floors_of(run, scores),
        "warnings": warnings_of(run, scores),
        "environment": run.read_json("environment.json"),
    }
