"""Dependency parsing: the head and the relation of every word of a sentence."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from danseo.display.plots.figures import Arcs
from danseo.display.table import Table
from danseo.errors import DataError
from danseo.files import quote
from danseo.language import _
from danseo.metrics.parsing import attachment
from danseo.metrics.statistic import Metric, index_metrics
from danseo.records import ParseExample, Prediction
from danseo.rows import Row
from danseo.tasktypes.base import (
    NO_LABEL,
    DataFile,
    ErrorDescription,
    Examples,
    Golds,
    IsKnown,
    OutputRow,
    Predictions,
    Statistics,
    Systems,
    Task,
    TaskType,
    shuffle_sequences,
)
from danseo.tasktypes.combination import Combined, Combiner, Members, normalize_weights
from danseo.tasktypes.decoding import FLOOR, Array, Arrays, find_best_tree
from danseo.tasktypes.description import TaskDescription
from danseo.tasktypes.inputs import Input, text_of
from danseo.tasktypes.rendering import (
    ANSWER_WRONG,
    GOLD_WRONG,
    EarlierTurns,
    RenderedExample,
    confusion_table,
    found_table,
    join_parts,
    percent,
    plain_line,
    zip_counts,
)
from danseo.text.perturbations import WITHIN_WORDS, Change, change_spans

MAX_WORDS = 500  # of a sentence: every pair of words is scored, and no sentence is longer
_LENGTHS = {_("1-5 words"): range(1, 6), _("6-10 words"): range(6, 11), _("11-20 words"): range(11, 21)}
_LONGER = _("over 20 words")
Tree = tuple[Array, Array]
"""Log-probabilities of heads (words x root and words), and the best relation for each, as label positions."""


class Parsing(TaskType):
    """The answer is a tuple of (head, relation), one per word; head 0 is the root."""

    name = "parsing"
    length_unit = "words"
    hub_pipeline = "token-classification"
    has_conll = True
    perturbations = WITHIN_WORDS
    partial_credit_unit = "words"
    is_numbered = False
    custom_title = "dependency parsing"
    custom_label_word = "relation"
    custom_metrics: ClassVar[Mapping[str, Metric]] = index_metrics(
        Metric("parse/las@1", "share of the words with the right head and relation, punctuation included"),
        Metric("parse/uas@1", "share of the words with the right head, punctuation included"),
    )

    def measure_length(self, example: Any) -> int:
        return len(example.words)

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        words = tuple(text.split())
        return ParseExample(guid, words, (), text, pos=("NNG",) * len(words))

    def validate(self, task: Task, example: Any, answer: Any) -> tuple[tuple[int, str], ...]:
        words = len(example.words)
        if not isinstance(answer, list | tuple):
            raise ValueError("the answer should be a list of [head, relation], one per word")
        if len(answer) != words:
            raise ValueError(_("{n} words answered, the sentence has {all}").format(n=len(answer), all=words))
        for position, pair in enumerate(answer, 1):
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise ValueError(f"word {position} should be [head, relation], not {quote(pair)}")
            head, relation = pair
            if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head <= words:
                raise ValueError(f"word {position} has head {quote(head)}; it should be from 0 (the root) to {words}")
            if relation not in task.labels:
                known = ", ".join(task.labels)
                raise ValueError(f"word {position} has the unknown relation {quote(relation)}; known: {known}")
        return tuple((head, relation) for head, relation in answer)

    def change_texts(self, example: Any, change: Change) -> Any:
        ends = list(accumulate(len(word) + 1 for word in example.words))
        spans = [(end - 1 - len(word), end - 1) for end, word in zip(ends, example.words, strict=True)]
        text, places = change_spans(" ".join(example.words), spans, change)
        words = tuple(text[start:end] for start, end in places)
        return replace(example, words=words, text=text) if text.split() == [*words] else example

    # Baselines

    def most_frequent(self, golds: Sequence[Any]) -> Any:
        return Counter(relation for gold in golds for _, relation in gold).most_common(1)[0][0]

    def majority_answer(self, example: Any, most_frequent: Any) -> Any:
        """Return the next word as the head of every word."""
        return tuple((head, most_frequent) for head in (*range(2, len(example.words) + 1), 0))

    def is_most_frequent(self, task: Task, value: Any) -> bool:
        return isinstance(value, str)

    def shuffle_answers(self, examples: Sequence[Any], rng: random.Random) -> list[Any]:
        golds = [example.gold for example in examples]
        relations = shuffle_sequences([[relation for _, relation in gold] for gold in golds], golds, rng)
        return [tuple((rng.randint(0, len(row)), relation) for relation in row) for row in relations]

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        words = [
            (gold, answer)
            for example, prediction in zip(examples, predictions, strict=True)
            for gold, answer in zip(example.gold, prediction.answer, strict=True)
        ]
        right = Counter(gold[1] for gold, answer in words if gold == answer)
        heads = Counter(gold[1] for gold, answer in words if gold[0] == answer[0])
        gold_counts, answered = Counter(gold[1] for gold, _ in words), Counter(answer[1] for _, answer in words)
        counts = zip_counts(task.labels, right, answered, gold_counts)
        table = found_table("per relation (right: head and relation)", "relation", counts)
        rows = [(*row, percent(heads[str(row[0])], gold_counts[str(row[0])])) for row in table.rows]
        with_heads = Table(table.title, (*table.columns, "head right %"), rows)
        pairs = [(gold[1], answer[1]) for gold, answer in words if gold[0] == answer[0]]
        sides = [gold for gold, _ in pairs], [answer for _, answer in pairs]
        confusion = confusion_table(task.labels, *sides, title="confusion where the head is right")
        return [with_heads, length_table(examples, predictions), confusion]

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        words = ["ROOT", *example.words]
        wrong = [
            tuple(f"{word} → {words[head]} {relation}" for head, relation in pair)
            for word, pair in zip(example.words, zip(example.gold, prediction.answer, strict=True), strict=True)
            if pair[0] != pair[1]
        ]
        if not wrong:
            return None
        gold, answer = zip(*wrong, strict=True)
        parts = {"text": " ".join(example.words), GOLD_WRONG: join_parts(gold), ANSWER_WRONG: join_parts(answer)}
        return ErrorDescription(float(len(wrong)), parts)

    def credit(self, example: Any, answer: Any) -> float:
        """Return the share of right words: few trees are right in every word."""
        return sum(tuple(g) == tuple(a) for g, a in zip(example.gold, answer, strict=True)) / len(example.gold)

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        lines = [plain_line("text", " ".join(example.words))]
        first = next(iter(answers.values()), None)
        if first is None:
            return RenderedExample(example.guid, tuple(lines))
        wrong = frozenset(
            k for k, (g, a) in enumerate(zip(example.gold, first.answer, strict=True)) if tuple(g) != tuple(a)
        )
        for name, prediction in answers.items():
            pairs = list(zip(example.gold, prediction.answer, strict=True))
            heads, both = (sum(g[0] == a[0] for g, a in pairs), sum(tuple(g) == tuple(a) for g, a in pairs))
            text = _("{heads} of {n} heads right, {both} with their relation")
            text = text.format(heads=heads, n=len(pairs), both=both)
            lines.append(plain_line(name, text, "answer", "right" if both == len(pairs) else "wrong"))
        tags = tuple(sorted({example.gold[k][1] for k in wrong}))
        return RenderedExample(example.guid, tuple(lines), tags, Arcs(example.words, example.gold, first.answer, wrong))

    def measure_width(self, example: Any) -> int:
        return len(example.words)

    # Ensembles and output

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return TreeCombiner(members, method)

    def pack_arrays(self, task: Task, rows: Sequence[Any], token_starts: Sequence[Array] | None = None) -> Arrays:
        """Return the log-probabilities of heads and the best relation for each, all sentences concatenated."""
        flat = [np.concatenate([tree[part].ravel() for tree in rows]) for part in (0, 1)]
        words = np.array([len(arcs) for arcs, _ in rows], dtype=np.int64)
        return {"arcs": flat[0], "relations": flat[1].astype(np.int8), "words": words, "labels": np.array(task.labels)}

    def unpack_arrays(self, task: Task, arrays: Arrays) -> list[Any]:
        """Return the trees; relations as positions among the task's labels."""
        positions = np.array([task.labels.index(label) for label in arrays["labels"].tolist()])
        words, ends = arrays["words"], np.cumsum(arrays["words"] * (arrays["words"] + 1))[:-1]
        columns = (words.tolist(), np.split(arrays["arcs"], ends), np.split(positions[arrays["relations"]], ends))
        return [(arcs.reshape(n, n + 1), best.reshape(n, n + 1)) for n, arcs, best in zip(*columns, strict=True)]

    def fits_example(self, row: Any, example: Any) -> bool:
        return len(row[0]) == len(example.words)

    def to_row(
        self, task: Task, example: Any, prediction: Prediction, table: Any = None, with_tags: bool = False
    ) -> OutputRow:
        columns = zip(example.words, prediction.answer, strict=True)
        words: list[OutputRow] = [{"word": word, "head": head, "relation": name} for word, (head, name) in columns]
        if not example.pos_tagger:
            return {"answer": prediction.answer, "words": words}
        tagged = [{**word, "pos": tags} for word, tags in zip(words, example.pos, strict=True)]
        return {"answer": prediction.answer, "words": tagged, "pos_tagger": example.pos_tagger}

    def to_conll(self, row: Mapping[str, Any]) -> str:
        """Return CoNLL-U: ten columns, of which words, heads, relations and the tags of a tagger are known."""
        lines = "".join(
            f"{number}\t{word['word']}\t_\t_\t{word.get('pos', '_')}\t_\t{word['head']}\t{word['relation']}\t_\t_\n"
            for number, word in enumerate(row["words"], 1)
        )
        tagger = f"# pos_tagger = {row['pos_tagger']}\n" if "pos_tagger" in row else ""
        return f"# sent_id = {row['guid']}\n# text = {row['text']}\n{tagger}{lines}\n"

    # Custom tasks

    def custom_input(self, description: TaskDescription) -> Input:
        return words_input()

    def read_custom(self, file: DataFile, is_known: IsKnown) -> Iterator[Any]:
        """Yield the sentences of CoNLL-U; ranges (1-2) and empty nodes (1.1) are left out."""
        for number, (line, comments, lines) in enumerate(file.blocks(), 1):
            words = [(k, fields) for k, fields in lines if fields[0].isdigit()]
            gold = tuple(
                _read_arc(Row({}, f"{file.path}, line {at}"), position, fields, len(words), file.description, is_known)
                for position, (at, fields) in enumerate(words, 1)
            )
            if not words:
                raise DataError(f"{file.path}, line {line}: the sentence has no words")
            if len(words) > MAX_WORDS:
                raise DataError(
                    f"{file.path}, line {line}: {len(words)} words, but at most {MAX_WORDS} are parsed; split it"
                )
            named = dict(comment[1:].split("=", 1) for comment in comments if "=" in comment)
            guid = next((value.strip() for key, value in named.items() if key.strip() == "sent_id"), str(number))
            forms, lemmas, pos = (tuple(fields[column] for _, fields in words) for column in (1, 2, 3))
            yield ParseExample(guid, words=forms, gold=gold, text=" ".join(forms), lemmas=lemmas, pos=pos)

    def measure_custom(self, custom: TaskDescription, examples: Examples, golds: Golds, answers: Golds) -> Statistics:
        return {
            "parse/las@1": attachment(golds, answers, labelled=True),
            "parse/uas@1": attachment(golds, answers, labelled=False),
        }

    def find_labels(self, gold: Any) -> Iterable[str]:
        return (relation for _, relation in gold)

    def rename_labels(self, answer: Any, names: Mapping[str, str]) -> Any:
        return tuple((head, names.get(relation, NO_LABEL)) for head, relation in answer)


def _read_arc(
    row: Row, position: int, fields: list[str], words: int, description: TaskDescription, is_known: IsKnown
) -> tuple[int, str]:
    if len(fields) < 8:
        raise row.error(f"{len(fields)} fields instead of 10; is this CoNLL-U?")
    head, relation = fields[6], fields[7]
    if fields[0] != str(position) or not head.isdigit() or int(head) > words:
        raise row.error(f"word {quote(fields[0])} with head {quote(head)}; heads are numbers from 0 to {words}")
    if not is_known(relation):
        raise row.error(f"unknown relation {quote(relation)}; known: {', '.join(description.labels[:30])}")
    return int(head), relation


def length_table(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Table:
    """Return the attachment scores of short and long sentences."""
    keys = [next((k for k, band in _LENGTHS.items() if len(e.gold) in band), _LONGER) for e in examples]
    rows: list[tuple[object, ...]] = []
    for key in (*_LENGTHS, _LONGER):
        chosen = [(e.gold, p.answer) for e, p, k in zip(examples, predictions, keys, strict=True) if k == key]
        if chosen:
            golds, answers = zip(*chosen, strict=True)
            values = [attachment(golds, answers, labelled=labelled).value() for labelled in (False, True)]
            rows.append((key, len(chosen), *values))
    return Table("per sentence length", ("length", "sentences", "UAS", "LAS"), rows)


def words_input(tags: Sequence[str] = ()) -> Input:
    """Return the input of a sentence as words; with a list of POS tags, its words may come with theirs."""

    def from_row(row: Row, guid: str) -> ParseExample:
        words = list(row.texts("words")) if "words" in row.values else text_of(row, "text").split()
        try:
            return make_parse_example(words, guid, _read_tags(row, len(words), tags) if "pos" in row.values else ())
        except ValueError as error:
            raise DataError(f"{row.where}: {error}") from None

    return Input(
        "a line of text, or a JSON object with text or words",
        from_row,
        lambda line, guid: make_parse_example(line.split(), guid),
    )


def _read_tags(row: Row, words: int, known: Sequence[str]) -> tuple[str, ...]:
    """Return the POS tags of every word, joined by + as in the raw files; parsers read the last one."""
    tags = row.texts("pos")
    if len(tags) != words:
        raise row.error(f"{len(tags)} entries in pos for {words} words; give one for each word")
    for position, tag in enumerate(tags, 1):
        row.one_of(tag.split("+")[-1], known, f"pos {position}")
    return tags


def make_parse_example(words: Sequence[str], guid: str, pos: tuple[str, ...] = ()) -> ParseExample:
    """Return a sentence to parse; raise ValueError if it has no words, empty ones or too many."""
    if not words:
        raise ValueError("there are no words")
    if len(words) > MAX_WORDS:
        raise ValueError(f"{len(words):,} words, but at most {MAX_WORDS:,} are parsed; split it into sentences")
    if blank := [position for position, word in enumerate(words, 1) if not word.strip()]:
        raise ValueError(f"word {blank[0]} is empty")
    return ParseExample(guid, words=tuple(words), gold=(), text=" ".join(words), pos=pos)


class TreeCombiner(Combiner):
    """Decodes the best tree over averaged scores of heads, or over votes.

    Members vote on the relation of a word with the probability that they give its head.
    """

    def __init__(self, members: Members, method: str) -> None:
        super().__init__(members, method)
        if method == "vote":
            positions = {label: position for position, label in enumerate(self.labels)}
            answers = [[[(h, positions[r]) for h, r in p.answer] for p in m.predictions] for m in members.members]
            self.answers = [[np.array(tree).reshape(-1, 2) for tree in trees] for trees in answers]
        else:
            self.rows: list[list[Tree]] = self.require_rows("scores of heads")

    def __call__(self, weights: Array) -> Combined:
        if self.method == "vote":
            votes = self.weight_votes(normalize_weights(weights))
            return self._predict([vote_tree(trees, votes) for trees in zip(*self.answers, strict=True)]), None
        averages = [self._average(trees, normalize_weights(weights)) for trees in zip(*self.rows, strict=True)]
        rows = [(arcs.astype(np.float16), relations) for arcs, relations in averages]
        heads = [find_best_tree(arcs) for arcs, _ in rows]
        chosen = [np.stack([h, r[np.arange(len(h)), h]], 1) for h, (_, r) in zip(heads, rows, strict=True)]
        return self._predict(chosen), rows

    def _predict(self, trees: list[Array]) -> list[Prediction]:
        pairs = zip(self.guids, trees, strict=True)
        return [Prediction(g, tuple((h, self.labels[r]) for h, r in tree.tolist())) for g, tree in pairs]

    def _average(self, trees: tuple[Tree, ...], weights: Array) -> Tree:
        arcs = np.stack([arcs.astype(np.float64) for arcs, _ in trees])
        relations = np.stack([relations for _, relations in trees])
        if self.method == "prob":
            with np.errstate(divide="ignore"):
                logs = np.logaddexp.reduce(arcs + np.log(weights)[:, None, None], axis=0)
        else:
            logs = np.tensordot(weights, arcs, axes=1)
        votes = weights[:, None, None] * np.exp(arcs)
        return np.maximum(logs, FLOOR), best_relations(relations, votes, len(self.labels))


def best_relations(relations: Array, weights: Array, labels: int) -> Array:
    """Return the relation with the most weight for every word and head; members with probability 0 break ties."""
    counts = np.zeros((*relations.shape[1:], labels))
    rows, columns = np.indices(relations.shape[1:])
    share = weights.sum(axis=(1, 2), keepdims=True)
    for member, weight in zip(relations, weights + 1e-12 * (share > 0), strict=True):
        counts[rows, columns, member] += weight
    best: Array = counts.argmax(axis=-1)
    return best


def vote_tree(trees: tuple[Array, ...], weights: Array) -> Array:
    """Return the tree with the most votes for its heads, each with the relation that its voters prefer."""
    words = len(trees[0])
    arcs, rows = np.zeros((words, words + 1)), np.arange(words)
    for tree, weight in zip(trees, weights, strict=True):
        arcs[rows, tree[:, 0]] += weight
    heads = find_best_tree(arcs).tolist()
    return np.array([(head, _vote_relation(position, head, trees, weights)) for position, head in enumerate(heads)])


def _vote_relation(position: int, head: int, trees: tuple[Array, ...], weights: Array) -> int:
    """Return the relation with the most votes among members with this head; among all if none has it."""
    votes: dict[int, float] = {}
    agreeing = [bool(tree[position, 0] == head) and weight > 0 for tree, weight in zip(trees, weights, strict=True)]
    for tree, weight, agrees in zip(trees, weights.tolist(), agreeing, strict=True):
        if agrees or not any(agreeing):
            relation = int(tree[position, 1])
            votes[relation] = votes.get(relation, 0.0) + weight
    return max(votes, key=lambda relation: (votes[relation], -relation))


TYPE = Parsing()
