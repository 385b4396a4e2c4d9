"""stress.json of a run: its scores on perturbed copies of dev, and examples that broke."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from danseo.errors import DanseoError
from danseo.runs.store import Run
from danseo.tasktypes.rendering import RenderedExample, RenderedLine, TextSpan

STRESS = "stress.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class StoredLine(_Part):
    """A line of a rendered example; a span is its text, mark and state."""

    name: str
    role: str
    spans: list[tuple[str, str, str]]

    @classmethod
    def from_line(cls, line: RenderedLine) -> "StoredLine":
        return cls(name=str(line.name), role=line.role, spans=[(s.text, s.mark, s.state) for s in line.spans])

    def to_line(self) -> RenderedLine:
        return RenderedLine(self.name, tuple(TextSpan(*span) for span in self.spans), self.role)


class BrokenExample(_Part):
    """An example that was answered better before the perturbation."""

    guid: str
    before: list[StoredLine]
    """Lines of the original example with the answer to it."""
    after: list[StoredLine]
    """The same of the perturbed example."""

    def render(self, name: str) -> RenderedExample:
        """Return the example for a page; it can be filtered by the name of the perturbation."""
        changed = [line for line in self.after if line not in self.before]
        return RenderedExample(self.guid, tuple(line.to_line() for line in (*self.before, *changed)), (name,))


class PerturbedScore(_Part):
    """The score of a run on copies of its examples with one perturbation."""

    changed: int
    """How many examples the perturbation changes."""
    score: float | None
    difference: float | None
    """From the score on the original examples, in points."""
    low: float | None
    high: float | None
    p: float | None
    broken: int
    """How many examples are answered worse."""
    repaired: int
    """How many examples are answered better."""
    examples: list[BrokenExample] = Field(default_factory=list)


class StressResult(_Part):
    """The scores of a run on original and perturbed examples."""

    task: str
    metric: str
    data_sha256: str
    n: int
    limit: int
    clean: float | None
    perturbations: dict[str, PerturbedScore]
    skipped: list[str] = Field(default_factory=list)
    """Perturbations after which the gold of the task would not be exact."""


def read_stress(run: Run) -> StressResult | None:
    """Return the stored result of `danseo stress`; None if there is none, or it is corrupted."""
    try:
        return StressResult.model_validate(run.read_json(STRESS)) if (run.path / STRESS).is_file() else None
    except (DanseoError, ValidationError):
        return None


def write_stress(run: Run, result: StressResult) -> StressResult:
    """Store a result, with earlier perturbations of the same examples, and return it."""
    old = read_stress(run)
    if old and all(getattr(old, name) == getattr(result, name) for name in ("data_sha256", "n", "limit", "clean")):
        result = result.model_copy(update={"perturbations": old.perturbations | result.perturbations})
    run.write_json(STRESS, result.model_dump())
    return result
