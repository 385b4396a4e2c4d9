"""Collect the texts that can be translated, and write the Korean catalogue: python tools/messages.py (needs Babel).

New texts get an empty entry in danseo.po: fill it and run the tool again, which compiles danseo.mo.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path

import click

SOURCE = Path(__file__).parents[1] / "src" / "danseo"
CATALOGUE = SOURCE / "locale" / "ko" / "LC_MESSAGES" / "danseo.po"
_LABELS = {
    "Table": ("title", "columns"),
    "found_table": ("title", "columns"),
    "question_table": ("title",),
    "number_table": ("title",),
    "confusion_table": ("", "", "", "title"),
    "make_facts_table": ("title",),
    "PageSection": ("title",),
    "Page": ("", "title"),
    "FigureBlock": ("title",),
    "ExamplesBlock": ("title",),
    "Confidences": ("unit",),
    "Chart": ("", "x_label", "y_label"),
    "Forest": ("", "", "x_label"),
    "Bars": ("", "", "x_label", "title"),
    "Curve": ("name",),
}
"""Call -> the arguments that are labels, by position; keywords of these names are labels, too."""
_TERMS = (
    "gold", "text", "question", "passage", "user", "system", "right", "wrong", "missed", "Masked LMs",
    "question type", "answerability", "gold score",
    "done", "failed", "unfinished", "corrupted", "pruned", "learning rate", "epochs", "batch size",
    "a text", "a whole number", "a number", "true or false", "an object", "a list", "truncated", "malformed",
)  # fmt: skip
"""Words that the code composes: roles, states, settings in tables."""
_OF_CLICK = (
    "Usage:", "Options", "Commands", "Show this message and exit.", "Show the version and exit.",
    "No such option: {name}", "No such option {name!r}.", "No such command {name!r}.", "Missing command.",
    "Missing argument", "Missing option", "Invalid value: {message}", "Invalid value for {param_hint}: {message}",
    "{value!r} is not a valid {number_type}.", "{value} is not in the range {range}.",
    "Option {name!r} does not take a value.", "default: {default}", "required",
)  # fmt: skip
_PLURALS_OF_CLICK = (
    ("{value!r} is not {choice}.", "{value!r} is not one of {choices}."),
    ("Got unexpected extra argument ({args})", "Got unexpected extra arguments ({args})"),
    ("Option {name!r} requires an argument.", "Option {name!r} requires {nargs} arguments."),
    ("Did you mean {possibility}?", "(Did you mean one of: {possibilities}?)"),
)
"""Texts of click that users see most; click looks them up in danseo's catalogue."""


def collect_messages() -> list[str]:
    """Return every text that needs an entry in the catalogue."""
    found = [text for path in sorted(SOURCE.rglob("*.py")) for text in _read_module(ast.parse(path.read_text("utf-8")))]
    for path in sorted((*SOURCE.rglob("*.html"), *SOURCE.rglob("*.js"))):
        found += re.findall(r'\b_\("([^"]+)"\)', path.read_text("utf-8"))
    found += [*_list_command_texts(), *_list_task_texts(), *_TERMS, *_OF_CLICK]
    return [text for text in dict.fromkeys(found) if _is_prose(text)]


def _is_prose(text: str) -> bool:
    """Return whether a text has words; ids of metrics and lines of code are the same in every language."""
    return bool(re.search("[A-Za-z]", text)) and not re.fullmatch(r"[\w/]+[@_][\w-]+", text) and "\b" not in text


def _read_module(tree: ast.Module) -> Iterator[str]:
    """Yield the marked texts of a module, and the labels of its tables, figures and pages."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _pair_values(target, node.value):
                    values.setdefault(name.id if isinstance(name, ast.Name) else "", []).append(value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in ("_", "ngettext"):
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))
        labels = _LABELS.get(called, ())
        given = [*zip(labels, node.args, strict=False), *((each.arg, each.value) for each in node.keywords)]
        for label, argument in given:
            yield from _read_labels(argument, values) if label and label in labels else ()


def _pair_values(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return the variables of an assignment with their values."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _read_labels(node: ast.expr, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Yield the texts of an argument: a text, a tuple of texts, or variables that hold them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.BinOp | ast.Starred | ast.IfExp):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _read_labels(child, values)
    elif isinstance(node, ast.Name):
        for value in values.pop(node.id, ()):
            yield from _read_labels(value, values)


def _list_command_texts() -> Iterator[str]:
    from danseo.cli import cli
    from danseo.cli.options import split_help

    def walk(group: click.Group) -> Iterator[click.Command]:
        for command in (group, *group.commands.values()):
            yield from walk(command) if isinstance(command, click.Group) and command is not group else (command,)

    for command in walk(cli):
        yield from split_help(command)
        options = copy(command).get_params(click.Context(command))  # click keeps the help option of a command
        yield from (option.help for option in options if isinstance(option, click.Option) and option.help)


def _list_task_texts() -> Iterator[str]:
    from danseo.tasks import TASKS
    from danseo.tasktypes import TASK_TYPES

    for task in TASKS.values():
        yield from (task.title, task.input.needs, task.label_word, *task.parts, task.metrics[task.headline].description)
    for task_type in TASK_TYPES.values():
        unit = task_type.resampling_unit
        yield from (task_type.custom_title, task_type.custom_label_word, task_type.length_unit, unit, f"{unit}s")


def write_catalogue(messages: Iterable[str]) -> list[str]:
    """Update danseo.po, compile danseo.mo and return the texts that have no translation."""
    from babel.messages import Catalog
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po, write_po

    with CATALOGUE.open("rb") as file:
        old = read_po(file, locale="ko")
    dates = {"creation_date": old.creation_date, "revision_date": old.revision_date}  # the same texts, the same file
    catalogue = Catalog("ko", project="danseo", charset="utf-8", fuzzy=False, **dates)
    for text in (*sorted(messages), *_PLURALS_OF_CLICK):
        catalogue.add(text, old[text].string if text in old else "")
    with CATALOGUE.open("wb") as file:
        write_po(file, catalogue, width=100, omit_header=False)
    with CATALOGUE.with_suffix(".mo").open("wb") as file:
        write_mo(file, catalogue)
    return [str(message.id) for message in catalogue if message.id and not all(_list_strings(message.string))]


def _list_strings(strings: object) -> Iterable[str]:
    return strings if isinstance(strings, tuple) else (str(strings or ""),)


if __name__ == "__main__":
    os.environ["DANSEO_LANG"] = "en"  # the help of options is collected, not its translation
    missing = write_catalogue(collect_messages())
    print(*(f"no translation: {text}" for text in missing), sep="\n")
