"""What a finished run shows: its scores, and on which examples they were picked and reported."""

from typing import Any

from danseo.runs.directory import Run
from danseo.tables import Table

_NAMES = {"report": "report half of dev", "dev": "all of dev"}


def run_tables(run: Run) -> list[Table]:
    """The scores on the reported half and on all of dev."""
    scores = run.read_json("scores.json")
    picked = "all of dev" if scores["selected_on"] == "dev" else "the select half of dev"
    tables = []
    for split, listed in scores["scores"].items():
        rows: list[tuple[object, ...]] = [(s["id"], s["value"], _ends(s["interval"]), s["n"]) for s in listed]
        same = split == "dev" and scores["selected_on"] == "dev"
        note = f"checkpoint picked on {picked}" + ("; SELECTED ON THE REPORTED SET" if same else "")
        tables.append(Table(_NAMES[split], ("metric", "score", "95 % interval", "n"), rows, note))
    if "weights" in scores:
        tables.append(_weights_table(scores))
    facts = run.read_json("environment.json")
    note = f"{run.path} ({facts['seconds']:.1f} s on {facts['device']})"
    tables[-1] = Table(tables[-1].title, tables[-1].columns, tables[-1].rows, f"{tables[-1].note}\n{note}")
    return tables


def _weights_table(scores: dict[str, Any]) -> Table:
    """Averaged training: the last and the best weights beside the last and the best average."""
    rows: list[tuple[object, ...]] = [
        (name, kept["step"], *(kept[half] for half in ("select", "report", "dev")))
        for name, kept in scores["weights"].items()
    ]
    columns = ("weights", "step", "select half", "report half", "all of dev")
    return Table(f"{scores['monitor']} of the weights kept in weights/", columns, rows)


def _ends(interval: list[float] | None) -> str | None:
    return f"{interval[0]:.2f} – {interval[1]:.2f}" if interval else None


def run_document(run: Run) -> dict[str, Any]:
    """The run as one JSON document."""
    return {"run": str(run.path), **run.read_json("scores.json"), "environment": run.read_json("environment.json")}
