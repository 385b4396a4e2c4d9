"""What `danseo --help` shows: the commands by what they are for, one whole line each."""

import click

SECTIONS: dict[str, dict[str, str]] = {
    "Score and compare": {
        "score": "Score anybody's predictions, with intervals and floors.",
        "compare": "Is B better than A, by how much, how sure: paired tests.",
        "eval": "Score a run again, or on another file or split.",
    },
    "Train and predict": {
        "train": "Fine-tune, keep the best checkpoint, predict, score: one run.",
        "prompt": "Ask a language model, here or behind a server: one run.",
        "predict": "Answer new text with a run's model.",
        "serve": "Answer over HTTP, with a page to try it.",
        "settings": "List every setting, or those that a run would have.",
        "configs": "Settings files that come with danseo: list, print, copy.",
    },
    "Many runs": {
        "runs": "List runs, their mean over seeds, or a table for a paper.",
        "sweep": "Run many settings: a grid, a list, a search; all devices.",
        "tune": "Search for good settings of a training command (Optuna).",
        "mine": "Find hard examples and likely label errors, by folds.",
        "ensemble": "Make a run of other runs' saved predictions.",
        "soup": "Average the weights of runs into a new model.",
    },
    "Masked language models": {
        "probe": "Score masked language models on frozen gaps.",
        "pretrain": "Train one on text, from scratch or further.",
        "coref": "Teach one to recover later mentions of an entity.",
    },
    "Data and tasks": {
        "tasks": "List the tasks, or show one.",
        "data": "Fetch, verify, describe and make data.",
        "doctor": "Check the installation: versions, devices, data, scorer.",
    },
    "Show and share": {
        "report": "One page with tables, plots and examples of runs.",
        "board": "The same pages live, in the browser.",
        "demo": "The main job on the built-in sample, offline.",
        "export": "Write a run in a form that others read.",
    },
}
"""Section -> command -> its line, short enough for 80 columns."""


class SectionedHelp(click.Group):
    """A group whose help lists its commands in sections; one that has no section yet stands at the end."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(context)))
        for title, lines in self.sections(context).items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in lines.items()])

    def sections(self, context: click.Context) -> dict[str, dict[str, str]]:
        """The sections that have commands, in order."""
        there = self.list_commands(context)
        found = {title: {n: line for n, line in lines.items() if n in there} for title, lines in SECTIONS.items()}
        placed = {name for lines in found.values() for name in lines}
        found["More"] = {n: self.commands[n].get_short_help_str(60) for n in there if n not in placed}
        return {title: lines for title, lines in found.items() if lines}
