"""The command line: one short function per command; the work is done elsewhere."""

import errno
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from danseo import __version__
from danseo.cli import options
from danseo.cli.data import data_command
from danseo.cli.distill import distill_command
from danseo.cli.ensemble import ensemble_command, soup_command
from danseo.cli.export import export_command
from danseo.cli.info import (
    completion_command,
    configs_command,
    demo_command,
    docs_command,
    doctor_command,
    settings_command,
    tasks_command,
)
from danseo.cli.mine import mine_command
from danseo.cli.options import TranslatedGroup, show_help
from danseo.cli.pretrain import coref_command, pretrain_command
from danseo.cli.probe import probe_command
from danseo.cli.prompt import prompt_command
from danseo.cli.published import published_command, reproduce_command
from danseo.cli.report import board_command, leaderboard_command, report_command
from danseo.cli.score import compare_command, score_command
from danseo.cli.serve import serve_command
from danseo.cli.stress import stress_command
from danseo.cli.sweep import sweep_command
from danseo.cli.train import eval_command, predict_command, runs_command, train_command
from danseo.cli.tune import tune_command
from danseo.display.escaping import say
from danseo.errors import DanseoError, WorkFailed, get_message
from danseo.extras import describe_missing, find_missing_package
from danseo.files import is_disk_failure, quote
from danseo.language import _, join, translate, translate_libraries
from danseo.launcher import SAFE_PATH

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    _("Score and compare"): (score_command, compare_command, eval_command, stress_command, published_command),
    _("Train and predict"): (
        train_command,
        prompt_command,
        predict_command,
        serve_command,
        settings_command,
        configs_command,
    ),
    _("Many runs"): (
        runs_command,
        sweep_command,
        reproduce_command,
        tune_command,
        mine_command,
        ensemble_command,
        soup_command,
        distill_command,
    ),
    _("Masked language models"): (probe_command, pretrain_command, coref_command),
    _("Data, tasks and help"): (tasks_command, data_command, docs_command, doctor_command, completion_command),
    _("Show and share"): (report_command, board_command, leaderboard_command, demo_command, export_command),
}
"""All commands, in the order of the help."""


class _SectionedGroup(TranslatedGroup):
    """A group whose help lists the commands by section, each with the first sentence of its docstring."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        for title, commands in SECTIONS.items():
            with formatter.section(translate(title)):
                translated = [self.get_command(context, command.name or "") for command in commands]
                lines = [(f"{each.name:{width}}", each.get_short_help_str(limit=80)) for each in translated if each]
                formatter.write_dl(lines)


@click.group(
    cls=_SectionedGroup,
    commands=[command for commands in SECTIONS.values() for command in commands],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="danseo")
@options.lang
@click.pass_context
def cli(context: click.Context) -> None:
    """danseo (단서): train, score, compare and understand Korean language models on KLUE and on your own data."""
    show_help(context)


QUIET = {"TRANSFORMERS_VERBOSITY": "error", "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1"}
"""Variables that keep libraries from printing advice."""
TELEMETRY = {"HF_HUB_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1"}
"""Variables that keep libraries from reporting home, unless the user sets them otherwise."""
_LIBRARIES = ("torch", "transformers", "accelerate", "huggingface_hub", "peft", "optuna", "spacy", "matplotlib")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; an error that the user can correct is one line on stderr."""
    for variable, value in (TELEMETRY | QUIET | SAFE_PATH).items():
        os.environ.setdefault(variable, value)
    _silence_libraries()
    if _is_busy():
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else two trainings on few cores crawl, each spinning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            _allow_korean(stream)
    translate_libraries()
    sys.exit(_run_guarded(lambda: cli.main(arguments, prog_name="danseo", standalone_mode=False)))


def _silence_libraries() -> None:
    """Hide warnings of libraries, which the user cannot act on; PYTHONWARNINGS=default shows them."""
    if sys.warnoptions:
        return
    warnings.showwarning = lambda *arguments, **options: None  # some libraries change the filters
    logging.getLogger().addHandler(logging.NullHandler())
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)


def _is_busy() -> bool:
    """Return whether other processes compute here; alone, spinning threads are up to a third faster."""
    return not hasattr(os, "getloadavg") or os.getloadavg()[0] > (os.cpu_count() or 1) - 0.5


def _allow_korean(stream: TextIOWrapper) -> None:
    """Use UTF-8 if the locale's encoding has no Korean; unencodable characters become question marks."""
    try:
        "단서 – ─".encode(stream.encoding)
        stream.reconfigure(errors="replace")
    except UnicodeEncodeError:
        stream.reconfigure(encoding="utf-8", errors="replace")


def _run_guarded(command: Callable[[], Any]) -> int:
    """Run a command and return its exit code; errors of the user, the disk and missing extras are one line."""
    try:
        result = command()
        if sys.stdout:
            sys.stdout.flush()  # a closed pipe shows here, not at the exit of the interpreter
    except DanseoError as error:
        return _print_error(get_message(error), WorkFailed.exit_code if is_disk_failure(error) else error.exit_code)
    except ModuleNotFoundError as error:
        if not (missing := find_missing_package(error)):
            raise
        return _print_error(describe_missing([missing]), DanseoError.exit_code)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "danseo"
        return _print_error(join([error.format_message(), _("See `{command} --help`.").format(command=where)]), 2)
    except click.ClickException as error:
        return _print_error(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        return _print_error(_("interrupted"), 130)
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:
        return _report_os_error(error)
    return result if isinstance(result, int) else 0


def _report_os_error(error: Exception) -> int:
    """Print one line for a full disk or a file name that is too long; raise any other error again."""
    path = error.filename if isinstance(error, OSError) else None
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return _print_error(
            _("{path} is too long for a file name; choose a shorter one").format(path=quote(str(path))), 2
        )
    if not is_disk_failure(error):
        raise error
    _discard_output()
    where = f" ({path})" if path else ""
    text = _("no space left to write to, or a broken disk{where}; free some space and try again")
    return _print_error(text.format(where=where), 1)


def _discard_output() -> None:
    """Discard the rest of standard output, which the interpreter would write again at its exit."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(message: str, code: int) -> int:
    """Print an error on one line of at most 800 characters, and return the exit code."""
    line = " ".join(translate(message).split())
    say(f"danseo: {line if len(line) <= 800 else f'{line[:400]} … {line[-400:]}'}")
    return code
