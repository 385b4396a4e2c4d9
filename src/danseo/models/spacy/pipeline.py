"""spaCy pipelines: made here, or opened from a folder or an installed package; and their entity recognizer."""

from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.models.checkpoint import refuse_code
from danseo.models.remote_code import no_model_code
from danseo.models.spacy.tokenizers import NAMES, register

PREFIX = "spacy:"
_LISTENER = "spacy.Tok2VecListener.v1"


def locate_pipeline(model: str) -> str:
    """Return the folder of spacy:FOLDER, or of the data of an installed package, which is not imported."""
    name = model.removeprefix(PREFIX)
    if name.isidentifier() and not Path(name).is_dir() and (spec := PathFinder.find_spec(name)) and spec.origin:
        folders = [path.parent for path in sorted(Path(spec.origin).parent.glob("*/config.cfg"))]
        return str(folders[-1]) if folders else name
    return name


def make_blank_pipeline(config: RunConfig) -> Any:
    """Return a pipeline with nothing but a Korean tokenizer."""
    import spacy

    register()
    return spacy.blank("ko", config={"nlp": {"tokenizer": {"@tokenizers": NAMES[config.spacy.tokenizer]}}})


def find_part(nlp: Any, factory: str) -> str | None:
    """Return the name of the first part that a factory made; None if there is none, or it has no weights yet."""
    names = (name for name in nlp.component_names if nlp.get_pipe_meta(name).factory == factory)
    return next((name for name in names if _has_weights(nlp.get_pipe(name).model)), None)


def _has_weights(model: Any) -> bool:
    return all(layer.has_param(name) for layer in model.walk() for name in layer.param_names)


def continue_ner(nlp: Any, labels: Sequence[str]) -> None:
    """Keep the entity recognizer and what it reads; add the labels that it lacks."""
    _remove_other_parts(nlp)
    ner = nlp.get_pipe(find_part(nlp, "ner"))
    for label in labels:
        ner.add_label(label)


def add_new_ner(nlp: Any, examples: Sequence[Any]) -> None:
    """Put a new entity recognizer on the tok2vec of the old one, else on that of the pipeline, else on a new one."""
    _remove_other_parts(nlp)
    old, tok2vec, new = find_part(nlp, "ner"), find_part(nlp, "tok2vec"), []
    if old:
        weights = nlp.get_pipe(old).model.get_ref("tok2vec").to_bytes()
        ner = nlp.replace_pipe(old, "ner", config={"model": nlp.get_pipe_config(old)["model"]})
    else:
        if not tok2vec:
            uses_vectors = {"pretrained_vectors": True} if nlp.vocab.vectors.shape[1] else {}
            new.append(nlp.add_pipe("tok2vec", config={"model": uses_vectors}))
        width = nlp.get_pipe(tok2vec or "tok2vec").model.get_dim("nO")
        ner = nlp.add_pipe("ner", config={"model": {"tok2vec": {"@architectures": _LISTENER, "width": width}}})
    for part in (*new, ner):
        part.initialize(lambda: examples, nlp=nlp)
    if old:
        ner.model.get_ref("tok2vec").from_bytes(weights)


def _remove_other_parts(nlp: Any) -> None:
    """Keep the entity recognizer and the part that it reads, or tok2vec; others would not fit changed vectors."""
    ner, tok2vec = find_part(nlp, "ner"), find_part(nlp, "tok2vec")
    read = [name for name in nlp.component_names if ner in getattr(nlp.get_pipe(name), "listening_components", ())]
    for name in set(nlp.component_names) - {ner, *(read if ner else [tok2vec])}:
        nlp.remove_pipe(name)


def open_pipeline(folder: Path, trust_remote_code: bool) -> Any:
    """Load a pipeline; functions of other packages are allowed only by --trust-remote-code."""
    import spacy

    register()
    refuse_code(folder, trust_remote_code)
    try:
        if not trust_remote_code and (named := _foreign_function(folder)):
            raise DanseoError(f"model code is not allowed: {folder} names {named}; allow it with --trust-remote-code")
        with no_model_code(trust_remote_code):
            return spacy.load(folder)
    except DanseoError:
        raise
    except Exception as error:  # it raises many kinds for the same few causes
        raise DanseoError(
            f"{folder} is no spaCy pipeline that loads here: {' '.join(str(error).split())[:200]}"
        ) from None


def _foreign_function(folder: Path) -> str | None:
    """Return a function or source pipeline in config.cfg that is neither of spaCy nor of danseo."""
    from spacy.util import get_lang_class, load_config, registry

    config = load_config(folder / "config.cfg", interpolate=True)
    language = get_lang_class(config["nlp"]["lang"])
    for name, part in config.get("components", {}).items():
        factory = part.get("factory")
        if factory is None or "source" in part:
            return f"[components.{name}] source = {part.get('source')}"
        if language.has_factory(factory) and not _is_known(_factory(language, factory).__module__):
            return f"factory = {factory}"
    for place, function in _list_functions({key: config.get(key, {}) for key in ("nlp", "components")}):
        module = registry.find(place, function)["module"] if registry.has(place, function) else ""
        if not _is_known(module or "") or function == "spacy.copy_from_base_model.v1":
            return f"@{place} = {function}"
    return None


def _factory(language: Any, name: str) -> Any:
    from spacy.util import registry

    own = language.get_factory_name(name)
    return registry.get("factories", own if registry.has("factories", own) else name)


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in ("spacy", "spacy_legacy", "thinc", "danseo")


def _list_functions(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the registry and name of every function in a part of config.cfg."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(key, str) and key.startswith("@"):
            yield key[1:], str(inner)
        else:
            yield from _list_functions(inner)
