"""The leaderboard (`danseo leaderboard`): bundles in, a static site in every language out."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danseo.data.dev_split import take_split
from danseo.data.find import data_root
from danseo.display.escaping import to_json
from danseo.display.table import Table
from danseo.errors import DanseoError, MissingData
from danseo.export.bundle import VerifiedBundle, verify_bundle
from danseo.files import check_writable, make_write_error, quote
from danseo.language import _
from danseo.report.comparison import ROUNDS, TaskComparison
from danseo.report.html import render_site
from danseo.report.leaderboard_page import LeaderboardEntry, TaskResult, make_leaderboard_pages
from danseo.scoring.tables import compare_answers, find_uncompared_metrics
from danseo.tasks import TASKS, get_task

DOCUMENT = "leaderboard.json"
"""The scores for programs; a folder with this file is a leaderboard and may be replaced."""
OnNote = Callable[[str], None]


@dataclass(frozen=True)
class Leaderboard:
    """A written leaderboard."""

    out: Path
    results: list[TaskResult]
    failed: dict[str, str]
    """Bundle -> why it is refused."""

    @property
    def exit_code(self) -> int:
        return 3 if self.failed else 0

    def tables(self) -> list[Table]:
        rows = [
            (result.task.name, entry.system, entry.score().get("value"), result.compared.letters_of(entry.system))
            for result in self.results
            for entry in result.entries
        ]
        note = _("{out}/index.html is the first page, index.ko.html in Korean").format(out=self.out)
        tables = [Table("leaderboard", ("task", "system", "score", "group"), rows, note, section="task")]
        return [
            *tables,
            *([Table("refused bundles", ("bundle", "reason"), sorted(self.failed.items()))] if self.failed else []),
        ]

    def as_dict(self) -> dict[str, Any]:
        return {"out": str(self.out), **make_document(self.results, self.failed)}


@dataclass
class _Verification:
    """The runs of the bundles that are verified, and the reasons for the others."""

    runs: dict[str, list[tuple[str, VerifiedBundle]]] = field(default_factory=dict)
    """Task -> bundle and run."""
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, bundle: str, runs: Sequence[VerifiedBundle]) -> None:
        """Take the runs of a bundle; refuse it if one of them answered other examples than those of its task."""
        for run in runs:
            task, others = run.task, self.runs.get(run.task.name, [])
            if task.custom and any(task.name.casefold() == klue.short.casefold() for klue in TASKS.values()):
                raise DanseoError(f"the own task {quote(task.name)} has the name of a KLUE task; rename it")
            if task.dev_sample[0] and run.examples != (full := get_task(task.name).read(run.gold)):
                raise DanseoError(f"{task.name}: {len(run.examples):,} of {len(full):,} dev examples; answer all")
            if others and (task.headline, run.examples) != (others[0][1].task.headline, others[0][1].examples):
                raise DanseoError(f"{task.name}: other examples or another metric than in {others[0][0]}; leave it out")
        for run in runs:
            self.runs.setdefault(run.task.name, []).append((bundle, run))


def write_leaderboard(
    paths: Sequence[Path], out: Path, data_dir: str | None = None, on_note: OnNote = lambda note: None
) -> Leaderboard:
    """Verify bundles, compute their scores again and write the site, completely or not at all."""
    _check_target(out)
    found = _verify_bundles(paths, data_dir, on_note)
    names = _name_systems(found.runs)
    results = []
    for task in (*TASKS, *sorted(found.runs.keys() - TASKS.keys())):
        if runs := found.runs.get(task):
            on_note(f"comparing the systems of {task}")
            results.append(_rank_runs([(names[bundle, task], bundle, run) for bundle, run in runs]))
    files = render_site(*make_leaderboard_pages(results, found.failed))
    files[DOCUMENT] = to_json(make_document(results, found.failed)) + "\n"
    _replace_folder(out, files)
    return Leaderboard(out, results, found.failed)


def _verify_bundles(paths: Sequence[Path], data_dir: str | None, on_note: OnNote) -> _Verification:
    """Verify every bundle, in the order of their names; missing data of KLUE ends the work."""
    if missing := next((path for path in paths if not path.is_file()), None):
        raise DanseoError(_("no such bundle: {path}; `danseo export --to bundle` makes them").format(path=missing))
    counts = Counter(path.name for path in set(paths))
    named = sorted((path.name if counts[path.name] == 1 else str(path), path) for path in set(paths))
    found = _Verification()
    for number, (name, path) in enumerate(named, 1):
        on_note(f"[{number}/{len(named)}] {name}")
        try:
            verified = verify_bundle(path, data_dir)
            found.add(name, [verified] if isinstance(verified, VerifiedBundle) else verified.runs)
        except MissingData:
            raise
        except DanseoError as error:
            found.failed[name] = _hide_folders(str(error), (path.parent, data_root(data_dir)))
    return found


def _hide_folders(reason: str, folders: Iterable[Path]) -> str:
    """Return a reason without the folders of this machine: the site is public."""
    for folder in folders:
        reason = reason.replace(f"{folder}/", "").replace(str(folder), folder.name) if folder.name else reason
    return reason


def _name_systems(runs: dict[str, list[tuple[str, VerifiedBundle]]]) -> dict[tuple[str, str], str]:
    """Return (bundle, task) -> the stated model, with seed and bundle where a task has several runs of the model."""
    facts = [
        (bundle, task, str(run.manifest["model"]), f"seed {run.manifest['seed']}")
        for task, listed in runs.items()
        for bundle, run in listed
    ]
    names: dict[tuple[str, str], str] = {}
    for model in dict.fromkeys(fact[2] for fact in facts):
        for level in (1, 2, 3):
            chosen = {(f[0], f[1]): ", ".join((f[2], f[3], f[0])[:level]) for f in facts if f[2] == model}
            if len({(task, name) for (_bundle, task), name in chosen.items()}) == len(chosen):
                break
        names |= chosen
    taken: set[tuple[str, str]] = set()
    for (bundle, task), name in sorted(names.items()):
        while (task, name) in taken:  # a stated model may contain the words that are added to another one
            name += f" [{bundle}]"
        taken.add((task, name))
        names[bundle, task] = name
    return names


def _rank_runs(named: Sequence[tuple[str, str, VerifiedBundle]]) -> TaskResult:
    """Return the runs of a task, best first, with their paired tests on the split that all of them report."""
    first = named[0][2]
    task, examples = first.task, first.examples
    entries = [LeaderboardEntry(system, bundle, task, run.manifest, run.scores) for system, bundle, run in named]
    entries.sort(key=lambda entry: (-entry.rank_value(), entry.system))
    runs = {system: run for system, _bundle, run in named}
    compared = TaskComparison(note=_("there is only one system, so nothing is compared"))
    if len(scored := [entry for entry in entries if entry.score()]) > 1:
        split = entries[0].split
        chosen = take_split(task, examples, examples, split)[0]
        systems = {e.system: take_split(task, examples, runs[e.system].predictions, split)[1] for e in scored}
        skip = find_uncompared_metrics(task, (), headline_only=True)
        files = {system: Path(run.bundle.name) for system, run in runs.items()}
        result = compare_answers(task, chosen, systems, first.gold, files, skip=skip, rounds=ROUNDS)
        compared = TaskComparison(result, {name: name for name in systems})
    is_klue = not task.custom and task.rows(examples) == task.official_rows.get("dev")
    return TaskResult(task, entries, compared, is_klue)


def make_document(results: Sequence[TaskResult], failed: dict[str, str]) -> dict[str, Any]:
    """Return the scores for programs: recomputed values, and under "stated" what predictions cannot prove."""
    return {
        "tasks": {
            result.task.name: [
                {
                    "system": entry.system,
                    "bundle": entry.bundle,
                    "metric": result.task.headline,
                    "split": entry.split,
                    "group": result.compared.letters_of(entry.system) or None,
                    "scores": entry.scores,
                    "stated": {key: entry.manifest[key] for key in ("model", "seed", "selected_on")},
                }
                for entry in result.entries
            ]
            for result in results
        },
        "failed": [{"bundle": bundle, "reason": reason} for bundle, reason in sorted(failed.items())],
    }


def _check_target(out: Path) -> None:
    """Refuse a folder with other files than those of a leaderboard, before long work starts."""
    check_writable(out.parent)
    if out.exists() and not (out.is_dir() and ((out / DOCUMENT).is_file() or not any(out.iterdir()))):
        raise DanseoError(_("{out} exists and is not a leaderboard; name a new folder with --out").format(out=out))


def _replace_folder(out: Path, files: dict[str, str]) -> None:
    """Write the files into a new folder, and put it in the place of the old one."""
    target = out.resolve()  # a link to the folder stays
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            fresh, old = Path(temporary) / "new", Path(temporary) / "old"
            fresh.mkdir()
            for name, content in files.items():
                (fresh / name).write_text(content, "utf-8", newline="\n")
            if target.exists():
                target.rename(old)
            try:
                fresh.rename(target)
            finally:
                if old.exists() and not target.exists():
                    old.rename(target)
    except OSError as error:
        raise make_write_error(out, error) from None
