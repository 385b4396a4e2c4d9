"""The packages that each extra of danseo installs, and the error for a missing one."""

from collections.abc import Iterable
from importlib.util import find_spec

from danseo.errors import MissingExtra
from danseo.language import _

PACKAGES = {
    "": (
        "click",
        "filelock",
        "huggingface_hub",
        "jinja2",
        "koreanize-matplotlib",
        "matplotlib",
        "numpy",
        "pyarrow",
        "pydantic",
        "rich",
        "scipy",
    ),
    "train": ("torch", "transformers", "accelerate", "safetensors", "scikit-learn"),
    "ko": ("kiwipiepy",),
    "sweep": ("optuna", "ray"),
    "onnx": ("onnx", "onnxruntime", "tokenizers"),
    "serve": ("httptools", "starlette", "uvicorn", "uvloop"),
    "llm": ("bitsandbytes", "llguidance", "peft"),
    "spacy": ("spacy", "kiwipiepy"),
    "gliner": ("gliner2", "torch", "transformers", "peft"),
    "board": ("starlette", "uvicorn"),
    "mlflow": ("mlflow-skinny", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""Extra -> what it installs; "" is danseo itself."""
_MODULES = {"scikit-learn": "sklearn", "mlflow-skinny": "mlflow"}
_INSTALLED_BY = {"tokenizers": "transformers"}


def require(*packages: str, extra: str = "") -> None:
    """Raise MissingExtra with the pip command if one of the packages is not installed."""
    if missing := [package for package in packages if not is_installed(package)]:
        raise MissingExtra(describe_missing(missing, extra))


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return find_spec(get_module_name(package)) is not None


def get_module_name(package: str) -> str:
    """Return the module name of a package."""
    return _MODULES.get(package, package.replace("-", "_"))


def describe_missing(missing: Iterable[str], extra: str = "") -> str:
    """Return which packages are missing, and the pip command that installs them."""
    names = list(dict.fromkeys(missing))
    extras = extra or ",".join(dict.fromkeys(filter(None, map(find_extra, names))))
    target = f"'danseo[{extras}]'" if extras else "danseo"
    text = _("{package} is not installed; run: pip install {target}")
    if names[1:]:
        text = _("{packages} and {package} are not installed; run: pip install {target}")
    return text.format(packages=", ".join(names[:-1]), package=names[-1], target=target)


def find_extra(package: str) -> str:
    """Return the extra that installs a package; "" for danseo itself."""
    package = _INSTALLED_BY.get(package, package)
    return next(extra for extra, packages in PACKAGES.items() if package in packages)


def find_missing_package(error: ModuleNotFoundError) -> str | None:
    """Return the missing package of an import error; None if no extra installs it."""
    top = (error.name or "").split(".")[0]
    known = (*(package for packages in PACKAGES.values() for package in packages), *_INSTALLED_BY)
    return next((package for package in known if get_module_name(package) == top), None)
