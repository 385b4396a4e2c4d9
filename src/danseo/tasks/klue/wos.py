"""KLUE-DST (Wizard of Seoul): what the user wants so far, after each user turn."""

from collections.abc import Sequence
from pathlib import Path

from danseo.files import quote
from danseo.metrics.dialogue_state import joint_goal, pooled_f1, turn_f1
from danseo.metrics.statistic import Metric, Statistic, index_metrics
from danseo.records import DialogueExample, Prediction
from danseo.rows import Row, read_rows
from danseo.tasktypes import dialogue_state
from danseo.tasktypes.base import Task, answers_of, golds_of

_SLOTS = {
    "관광": "경치 좋은|교육적|도보 가능|문화 예술|역사적|이름|종류|주차 가능|지역",
    "숙소": "가격대|도보 가능|수영장 유무|스파 유무|예약 기간|예약 명수|예약 요일|이름|인터넷 가능|조식 가능|종류|"
    "주차 가능|지역|헬스장 유무|흡연 가능",
    "식당": "가격대|도보 가능|야외석 유무|예약 명수|예약 시간|예약 요일|이름|인터넷 가능|종류|주류 판매|주차 가능|지역|"
    "흡연 가능",
    "지하철": "도착지|출발 시간|출발지",
    "택시": "도착 시간|도착지|종류|출발 시간|출발지",
}
SLOTS = tuple(f"{domain}-{slot}" for domain, slots in _SLOTS.items() for slot in slots.split("|"))


def read(path: Path) -> list[DialogueExample]:
    return [example for row in read_rows(path) for example in _read_turns(row)]


def _read_turns(row: Row) -> list[DialogueExample]:
    """Return one example per user turn, with all turns up to it."""
    guid, domains = row.text("guid"), row.texts("domains")
    texts: list[str] = []
    examples: list[DialogueExample] = []
    for number, turn in enumerate(row.children("dialogue")):
        if turn.text("role") != ("user", "sys")[number % 2]:
            raise turn.error(f"role {quote(turn.text('role'))}: turns should alternate, the user first")
        texts.append(turn.text("text"))
        if number % 2 == 0:
            examples.append(DialogueExample(f"{guid}-{number // 2}", guid, tuple(texts), _read_state(turn), domains))
    if not examples:
        raise row.error("the dialogue has no turns; restore or remove it")
    return examples


def _read_state(turn: Row) -> tuple[str, ...]:
    state = turn.texts("state")
    for value in state:
        if problem := dialogue_state.find_problem(TASK, value):
            raise turn.error(problem)
    return state


def measure(examples: Sequence[DialogueExample], predictions: Sequence[Prediction]) -> dict[str, Statistic]:
    golds, answers = golds_of(examples), answers_of(predictions)
    return {
        "wos/jga@official-1": joint_goal(golds, answers),
        "wos/slot_f1@official-1": turn_f1(golds, answers),
        "wos/slot_f1@pooled-1": pooled_f1(golds, answers),
    }


TASK = Task(
    name="wos",
    short="DST",
    title="dialogue state tracking",
    type=dialogue_state.TYPE,
    folder="wos-v1.1",
    extension=".json",
    official_rows={"train": 8000, "dev": 1000},
    read=read,
    labels=SLOTS,
    rows=lambda examples: len({example.dialogue for example in examples}),
    companions={"ontology.json": 45},
    metrics=index_metrics(
        Metric("wos/jga@official-1", "share of the turns with exactly the gold state"),
        Metric("wos/slot_f1@official-1", "mean over turns of the F1 of slot values"),
        Metric("wos/slot_f1@pooled-1", "F1 of the slot values of all turns pooled"),
    ),
    measure=measure,
    cluster=lambda example: example.dialogue,
    input=dialogue_state.dialogue_input(),
    columns={"JGA": "wos/jga@official-1", "slot F1": "wos/slot_f1@official-1"},
)
