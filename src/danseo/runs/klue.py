"""Models × the eight tasks in KLUE's order and metrics, with the published baselines as reference rows."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from danseo.reading import read_text
from danseo.runs.index import Record, protocol
from danseo.runs.seeds import made_name, size_of
from danseo.runs.variants import key_of
from danseo.tables import Best, Second, Table

COLUMNS = {
    "TC F1": "ynat/macro_f1@official-1",
    "STS r": "sts/pearson@official-1",
    "STS F1": "sts/f1@official-1",
    "NLI acc": "nli/accuracy@official-1",
    "NER ent": "ner/entity_f1@official-1",
    "NER char": "ner/char_f1@official-1",
    "RE F1": "re/micro_f1@official-1",
    "RE AUPRC": "re/auprc@official-1",
    "DP UAS": "dp/uas@official-1",
    "DP LAS": "dp/las@official-1",
    "MRC EM": "mrc/exact_match@official-1",
    "MRC ROUGE": "mrc/rouge_w@official-1",
    "DST JGA": "wos/jga@official-1",
    "DST slot F1": "wos/slot_f1@official-1",
}
PUBLISHED = "published, test set"
_SIZES = ((80e6, "small"), (200e6, "base"))  # up to so many parameters; more is large


@dataclass(frozen=True)
class Line:
    """A row before it is shown."""

    model: str
    size: str
    cells: list[float | str | None]
    scored_on: str
    seeds: str


def klue_table(records: Sequence[Record]) -> Table:
    """Own models first, then the published ones; the best of all and of each size are marked among their like."""
    lines: list[Line] = []
    for split in sorted({protocol(record) or "" for record in records}):
        same = [record for record in records if (protocol(record) or "") == split]
        names = sorted({record.model for record in same}, key=lambda name: (_made(same, name), _size(same, name), name))
        lines += [_line(name, [r for r in same if r.model == name], split) for name in names]
    rows = [*_marked(_merged(lines)), *_marked(published())]
    note = (
        "bold or *: best; underlined, italic or ': best of its size; each among own and among published rows. "
        "Own rows are means over seeds, of several variants the one that is best on the select half"
    )
    return Table("KLUE", ("model", "size", *COLUMNS, "seeds", "scored on"), rows, note)


def _merged(lines: Sequence[Line]) -> list[Line]:
    """A model whose only unscored runs are unfinished ones shares the row of its scored ones."""
    scored = [line for line in lines if line.scored_on]
    for line in (line for line in lines if not line.scored_on):
        place = next((k for k, other in enumerate(scored) if other.model == line.model), None)
        if place is None:
            scored.append(line)
        else:
            pairs = zip(scored[place].cells, line.cells, strict=True)
            cells = [ours if ours is not None else theirs for ours, theirs in pairs]
            other = scored[place]
            scored[place] = Line(other.model, other.size, cells, other.scored_on, other.seeds)
    return scored


def _made(records: Sequence[Record], name: str) -> bool:
    return any(record.is_made_of_runs for record in records if record.model == name)


def _size(records: Sequence[Record], name: str) -> float:
    return max(size_of(record) for record in records if record.model == name)


def size_word(parameters: float) -> str:
    """small, base or large, by the number of parameters; – where it is not known."""
    return next((word for limit, word in _SIZES if parameters <= limit), "large") if parameters else "–"


def _line(name: str, records: Sequence[Record], split: str) -> Line:
    cells: list[float | str | None] = []
    counts: set[int] = set()
    for metric in COLUMNS.values():
        runs = [record for record in records if record.task == metric.split("/")[0]]
        done = best_variant([record for record in runs if record.status == "done"])
        found = [score["value"] for r in done if (score := r.score(metric)) and score["value"] is not None]
        cells.append(mean(found) if found else runs[0].status if runs and not done else None)
        counts |= {len(found)} - {0}
    seeds = "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"
    return Line(made_name(name), size_word(_size(records, name)), cells, split, seeds)


def best_variant(records: Sequence[Record]) -> list[Record]:
    """The runs of the settings with the highest mean on the select half; the reported half has no say."""
    groups: dict[object, list[Record]] = {}
    for record in records:
        groups.setdefault(key_of(record), []).append(record)
    return max(groups.values(), key=_select_score) if groups else []


def _select_score(records: Sequence[Record]) -> float:
    known = [score for record in records if (score := select_score(record)) is not None]
    return mean(known) if known else float("-inf")


def select_score(record: Record) -> float | None:
    """The headline on the select half; older runs have it in their log only."""
    if record.scores.get("select_score") is not None:
        return float(record.scores["select_score"])
    try:
        bests = [float(line["best"]) for line in record.run.read_log() if line.get("best") is not None]
    except (ValueError, TypeError, AttributeError):
        return None  # a damaged log decides nothing
    return bests[-1] if bests else None


def published() -> list[Line]:
    """The baselines of the KLUE benchmark's own table."""
    path = Path(__file__).parents[1] / "report" / "published.toml"
    document = tomllib.loads(read_text(path))
    return [
        Line(model["name"], model["size"], [model["scores"][column] for column in COLUMNS], PUBLISHED, "")
        for model in document["model"]
    ]


def _marked(lines: Sequence[Line]) -> list[tuple[object, ...]]:
    """The rows with the best numbers of each column marked; a lone number is no winner."""
    rows: list[list[object]] = [list(line.cells) for line in lines]
    for place in range(len(COLUMNS)):
        known = {k: value for k, line in enumerate(lines) if isinstance(value := line.cells[place], float)}
        for k, value in known.items():
            of_size = [other for j, other in known.items() if lines[j].size == lines[k].size]
            if len(known) > 1 and value == max(known.values()):
                rows[k][place] = Best(value)
            elif len(of_size) > 1 and value == max(of_size):
                rows[k][place] = Second(value)
    return [
        (line.model, line.size, *row, line.seeds or None, line.scored_on or None)
        for line, row in zip(lines, rows, strict=True)
    ]
