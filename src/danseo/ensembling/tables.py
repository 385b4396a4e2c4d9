"""What `danseo ensemble` and `danseo soup` print: the members beside the whole, and what it gains."""

from typing import Any

from danseo.display.table import Table, shown_interval
from danseo.runs.directory import Run
from danseo.runs.layouts.single import run_tables
from danseo.scoring.tables import shown_p


def ensemble_tables(run: Run) -> list[Table]:
    """The members with their weights and scores and the gain over each, then the scores of the run."""
    scores = run.read_json("scores.json")
    return [_members(scores), *run_tables(run)]


def _members(scores: dict[str, Any]) -> Table:
    facts = scores["ensemble"]
    listed = scores["scores"].get(scores["reported_on"]) or scores["scores"]["dev"]
    own = next(score["value"] for score in listed if score["id"] == scores["headline"])
    rows: list[tuple[object, ...]] = [
        (
            member["run"],
            member["weight"],
            member["score"],
            member["difference"],
            shown_interval(*member["interval"], signed=True),
            shown_p(member["p_permutation"]),
        )
        for member in facts["members"]
    ]
    rows.append((facts.get("kind", "ensemble").upper(), None, own, None, None, None))
    how = [
        f"weights: {facts['weights'] if isinstance(facts['weights'], str) else 'given'}",
        f"members: {facts['select']}",
    ]
    how = [f"method: {facts['method']}", *how] if facts.get("method") else how
    how.append("fitted on the select half of dev" if facts["fitted_on"] else "nothing fitted")
    if facts.get("threshold") is not None:
        how.append(f"threshold of no answer moved by {facts['threshold']:+.2f}")
    if facts.get("plain_argmax") is not None:
        how.append(
            f"tags decoded legally; the likeliest tag of each character alone would score {facts['plain_argmax']:.2f}"
        )
    where = "the report half of dev" if scores["reported_on"] == "report" else "all of dev"
    mark = " (SELECTED ON THE REPORTED SET)" if scores["selected_on"] == "dev" else ""
    title = f"{scores['headline']} on {where}{mark}"
    columns = ("run", "weight", "score", "gain", "95 % interval", "p")
    return Table(title, columns, rows, "; ".join(how))
