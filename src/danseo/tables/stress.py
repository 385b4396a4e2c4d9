"""Scores on perturbed copies of dev as tables and figures, for one run or several side by side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from danseo.display.plots.figures import Forest, Grid
from danseo.display.table import Table, format_interval
from danseo.language import _, join
from danseo.runs.stress_file import BrokenExample, PerturbedScore, StressResult
from danseo.scoring.compare import ALPHA
from danseo.scoring.resampling import correct_holm
from danseo.scoring.tables import format_p

_WIDTH = 90  # characters of an example in a table
_FULL_COLOR = 20.0  # points


@dataclass(frozen=True)
class StressTables:
    """What `danseo stress` prints: run -> its result."""

    results: Mapping[str, StressResult]

    def tables(self) -> list[Table]:
        tables = [make_stress_table(each) for each in self.results.values()]
        if len(self.results) > 1:
            tables = [make_side_by_side_table(self.results)]
        return [*tables, make_broken_table(self.results)]

    def as_dict(self) -> dict[str, Any]:
        return {"runs": {name: result.model_dump() for name, result in self.results.items()}}


def make_stress_table(result: StressResult) -> Table:
    """Return one row per perturbation, the largest drop first."""
    corrected = correct_p_values(result)
    rows: list[tuple[object, ...]] = [(_("none"), None, result.clean, *[None] * 5)]
    for name, each in rank_perturbations(result):
        interval = format_interval((each.low, each.high), signed=True)
        changed, p = 100 * each.changed / result.n, format_p(corrected[name])
        rows.append((name, changed, each.score, each.difference, interval, p, each.broken, each.repaired))
    columns = ("perturbation", "changed %", "score", "difference", "95 % interval", "p (Holm)", "broken", "repaired")
    note = join([*_list_notes(result), _("broken, repaired: examples answered worse or better than before")], "\n")
    return Table(_("{metric} on perturbed copies").format(metric=result.metric), columns, rows, note)


def _list_notes(result: StressResult) -> list[str]:
    skipped = _("left out, because gold would not be exact: {names}").format(names=", ".join(result.skipped))
    return [_("n = {n:,} of the report split of dev").format(n=result.n), *([skipped] if result.skipped else [])]


def make_side_by_side_table(results: Mapping[str, StressResult]) -> Table:
    """Return one row per perturbation with the score and its difference of every run; * is significant."""
    first = next(iter(results.values()))
    rows: list[tuple[object, ...]] = [(_("none"), *(_show(result.clean) for result in results.values()))]
    corrected = {run: correct_p_values(result) for run, result in results.items()}
    for name in rank_names(results.values()):
        cells = [
            _show_cell(each, corrected[run].get(name)) if (each := result.perturbations.get(name)) else None
            for run, result in results.items()
        ]
        rows.append((name, *cells))
    note = join([_("score (difference from no perturbation; * p (Holm) < 0.05)"), *_list_notes(first)], "\n")
    title = _("{metric} on perturbed copies").format(metric=first.metric)
    return Table(title, ("perturbation", *results), rows, note, keys=1)


def _show(value: float | None, format_: str = ".2f") -> str:
    return "–" if value is None else format(round(value, 2) + 0.0, format_)  # no -0.00


def _show_cell(each: PerturbedScore, p: float | None) -> str:
    star = "*" if p is not None and p < ALPHA else ""
    return f"{_show(each.score)} ({_show(each.difference, '+.2f')}{star})"


def make_broken_table(results: Mapping[str, StressResult]) -> Table:
    """Return for each run and perturbation one example that broke."""
    rows = [
        (run, name, *_show_example(each.examples[0]))
        for run, result in results.items()
        for name, each in rank_perturbations(result)
        if each.examples
    ]
    columns = ("run", "perturbation", "example", "changed", "answer before", "answer")
    table = Table(_("examples that broke"), columns, rows)
    return table.without(["run"]) if len(results) == 1 else table


def _show_example(example: BrokenExample) -> list[str]:
    """Return the original and the changed text, and the answers to both."""
    lines = [example.before[0], example.after[0], example.before[-1], example.after[-1]]
    texts = ["".join(f"[{text}:{mark}]" if mark else text for text, mark, _state in line.spans) for line in lines]
    return [shorten(text, _WIDTH, placeholder=" …") for text in texts]


def rank_perturbations(result: StressResult) -> list[tuple[str, PerturbedScore]]:
    """Return the perturbations, the largest drop first."""
    return [(name, result.perturbations[name]) for name in rank_names([result])]


def rank_names(results: Iterable[StressResult]) -> list[str]:
    """Return the names of perturbations, the largest drop of any run first."""
    found = [(each.difference or 0.0, name) for result in results for name, each in result.perturbations.items()]
    return list(dict.fromkeys(name for _difference, name in sorted(found)))


def correct_p_values(result: StressResult) -> dict[str, float]:
    """Return the p values, corrected over the perturbations of a run."""
    known = {name: each.p for name, each in result.perturbations.items() if each.p is not None}
    return dict(zip(known, correct_holm(list(known.values())), strict=True))


def draw_stress(results: Mapping[str, StressResult]) -> Forest:
    """Return the differences with their intervals, by perturbation and run."""
    first = next(iter(results.values()))
    drawn = [
        (name if len(results) == 1 else f"{name}, {run}", each)
        for name in rank_names(results.values())
        for run, result in results.items()
        if (each := result.perturbations.get(name)) and each.difference is not None
    ]
    label = _("change of {metric} in points").format(metric=first.metric)
    values = [(each.low, each.difference or 0.0, each.high) for _name, each in drawn]
    return Forest([name for name, _each in drawn], values, label, levels=[(_("no change"), 0.0)])


def draw_stress_grid(results: Mapping[str, StressResult]) -> Grid:
    """Return runs × perturbations, coloured by the difference."""
    names = list(dict.fromkeys(name for result in results.values() for name in result.perturbations))
    scores = [[result.perturbations.get(name) for name in names] for result in results.values()]
    values = [[each.difference if each else None for each in row] for row in scores]
    texts = [["" if value is None else f"{round(value, 1) + 0.0:+.1f}" for value in row] for row in values]  # no -0.0
    colors = [[max(-1.0, min(1.0, (value or 0.0) / _FULL_COLOR)) for value in row] for row in values]
    return Grid(list(results), names, texts, colors, _("run ↓ perturbation →"))
