"""Dialogue states of several members as one: a vote on every slot, "not mentioned" among the choices."""

from danseo.ensembling.blend import Array, Blended, shares, trusted
from danseo.errors import DanseoError
from danseo.records import Prediction
from danseo.runs.answers import Members
from danseo.tasks.wos import slot_of

State = dict[str, tuple[str, ...]]
"""Slot -> what the state says of it."""


class Slots:
    """wos."""

    def __init__(self, members: Members, method: str) -> None:
        if method != "vote":
            raise DanseoError(f"--method {method}: runs of wos keep only their answers; use --method vote")
        self.members, self.order = members, {slot: position for position, slot in enumerate(members.task.labels)}
        self.guids = [p.guid for p in members.listed[0].predictions]
        self.states = [[state_of(p.answer) for p in m.predictions] for m in members.listed]

    def __call__(self, weights: Array) -> Blended:
        votes = trusted(shares(weights), self.members).tolist()
        columns = zip(self.guids, zip(*self.states, strict=True), strict=True)
        return [Prediction(guid, self._voted(states, votes)) for guid, states in columns], None

    def _voted(self, states: tuple[State, ...], weights: list[float]) -> tuple[str, ...]:
        slots = {slot for state in states for slot in state}
        answer: list[str] = []
        for slot in sorted(slots, key=self.order.__getitem__):
            votes: dict[tuple[str, ...], float] = {}
            for state, weight in zip(states, weights, strict=True):
                votes[state.get(slot, ())] = votes.get(state.get(slot, ()), 0.0) + weight
            best = max(votes, key=lambda said: (votes[said], said))
            answer += best
        return tuple(answer)


def state_of(answer: tuple[str, ...]) -> State:
    """A state by slot."""
    state: State = {}
    for item in answer:
        state[slot_of(item)] = (*state.get(slot_of(item), ()), item)
    return state
