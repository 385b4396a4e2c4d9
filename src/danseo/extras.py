"""The optional parts of danseo: the packages that each extra brings, and one line where one is missing."""

from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec

from danseo.errors import MissingExtra

PACKAGES = {
    "": (
        "click",
        "huggingface_hub",
        "jinja2",
        "koreanize-matplotlib",
        "matplotlib",
        "numpy",
        "pyarrow",
        "rich",
        "scipy",
    ),
    "train": ("torch", "transformers", "accelerate", "safetensors", "scikit-learn", "ufal.chu-liu-edmonds"),
    "ko": ("kiwipiepy",),
    "sweep": ("optuna", "ray"),
    "onnx": ("onnx", "onnxruntime", "tokenizers", "ufal.chu-liu-edmonds"),
    "serve": ("httptools", "starlette", "uvicorn", "uvloop"),
    "llm": ("llguidance", "peft"),
    "spacy": ("spacy", "kiwipiepy"),
    "gliner": ("gliner2", "torch", "transformers", "peft"),
    "board": ("starlette", "uvicorn"),
    "mlflow": ("mlflow-skinny", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""Extra -> what it installs; "" is danseo itself."""
_MODULES = {"scikit-learn": "sklearn", "ufal.chu-liu-edmonds": "ufal.chu_liu_edmonds", "mlflow-skinny": "mlflow"}
_BROUGHT = {"tokenizers": "transformers"}  # by another package


def require(*packages: str, extra: str = "") -> None:
    """Refuse to go on without these packages, in one line that says how to get them, by the named extra or any."""
    if missing := [package for package in packages if not is_installed(package)]:
        raise MissingExtra(complaint(missing, extra))


def is_installed(package: str) -> bool:
    """Whether the package can be imported; nothing is imported to find out."""
    with suppress(ModuleNotFoundError):  # of the part before the dot
        return find_spec(module_of(package)) is not None
    return False


def module_of(package: str) -> str:
    """The name that a package is imported by."""
    return _MODULES.get(package, package.replace("-", "_"))


def complaint(missing: Iterable[str], extra: str = "") -> str:
    """What is not there, and the one command that brings it."""
    names = list(dict.fromkeys(missing))
    extras = extra or ",".join(dict.fromkeys(found for name in names if (found := extra_of(name))))
    what = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
    source = f"'danseo[{extras}]'" if extras else "danseo"
    return f"{what} not installed; run: pip install {source}"


def extra_of(package: str) -> str:
    """The extra that brings a package."""
    package = _BROUGHT.get(package, package)
    return next(extra for extra, packages in PACKAGES.items() if package in packages)


def missing_in(error: ModuleNotFoundError) -> str | None:
    """The package whose absence the error is about; None where danseo does not bring it."""
    top = (error.name or "").split(".")[0]
    known = (*(package for packages in PACKAGES.values() for package in packages), *_BROUGHT)
    return next((package for package in known if module_of(package).split(".")[0] == top), None)
