"""Model folders that try to run code: each attack changes a good folder and leaves a trace where its code ran."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

OWN = """
from pathlib import Path
Path({trace!r}).touch()
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
class OwnConfig(BertConfig):
    model_type = "unheard-of"
class OwnModel(BertModel):
    config_class = OwnConfig
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""
CLASSES = {"AutoConfig": "OwnConfig", "AutoTokenizer": "OwnTokenizer"}
MODELS = ("AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSequenceClassification")


class Bomb:
    """An object that leaves the trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return exec, (f"open({str(self.trace)!r}, 'w').close()",)


def auto_map(place: str = "own") -> dict[str, object]:
    """Names of code for every class that a library may look for."""
    names = {**CLASSES, **dict.fromkeys((*MODELS, "AutoModelForTokenClassification"), "OwnModel")}
    found: dict[str, object] = {key: f"{place}.{name}" for key, name in names.items()}
    return {**found, "AutoTokenizer": [f"{place}.OwnTokenizer", f"{place}.OwnTokenizer"]}


def write_code(folder: Path, trace: Path) -> None:
    (folder / "own.py").write_text(OWN.format(trace=str(trace)))


def change_settings(folder: Path, change: Callable[[dict], dict], *names: str) -> bool:
    """Change every settings file of these names; False where there is none."""
    found = [path for name in names for path in folder.rglob(name)]
    for path in found:
        path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))))
    return bool(found)


CONFIGS = ("config.json", "gliner_config.json")


def code_of_an_unknown_type(folder: Path, trace: Path) -> bool:
    write_everywhere(folder, trace)
    return change_settings(folder, lambda old: old | {"model_type": "unheard-of", "auto_map": auto_map()}, *CONFIGS)


def code_of_a_known_type(folder: Path, trace: Path) -> bool:
    write_everywhere(folder, trace)
    return change_settings(folder, lambda old: old | {"auto_map": auto_map()}, *CONFIGS)


def code_under_another_key(folder: Path, trace: Path) -> bool:
    write_everywhere(folder, trace)
    hidden = {"attribute_map": {"zzz": "auto_map"}, "zzz": auto_map()}
    return change_settings(folder, lambda old: hidden | old, *CONFIGS)


def code_in_another_settings_file(folder: Path, trace: Path) -> bool:
    write_everywhere(folder, trace)
    for path in folder.rglob("config.json"):
        old = json.loads(path.read_text("utf-8"))
        path.with_name("config.4.0.0.json").write_text(json.dumps(old | {"auto_map": auto_map()}))
    return change_settings(folder, lambda old: old | {"configuration_files": ["config.4.0.0.json"]}, "config.json")


def code_of_the_tokenizer(folder: Path, trace: Path) -> bool:
    write_everywhere(folder, trace)
    named = {"auto_map": auto_map(), "tokenizer_class": "OwnTokenizer"}
    return change_settings(folder, lambda old: old | named, "tokenizer_config.json")


def code_in_another_folder(folder: Path, trace: Path) -> bool:
    """The folder itself holds no Python file, and its settings name the other one under another key."""
    other = trace.with_name("other")
    other.mkdir(exist_ok=True)
    write_code(other, trace)
    hidden = {"attribute_map": {"zzz": "auto_map"}, "zzz": auto_map(f"{other}--own")}
    change_settings(folder, lambda old: old | {"auto_map": auto_map(f"{other}--own")}, "tokenizer_config.json")
    return change_settings(folder, lambda old: hidden | old, *CONFIGS)


def pickled_weights(folder: Path, trace: Path) -> bool:
    found = list(folder.rglob("*.safetensors"))
    for path in found:
        path.unlink()
        for name in ("pytorch_model.bin", "model.safetensors.bin"):
            path.with_name(name).write_bytes(pickle.dumps({"a": Bomb(trace)}))
    return bool(found)


def pickled_shards(folder: Path, trace: Path) -> bool:
    found = list(folder.rglob("model.safetensors"))
    for path in found:
        path.unlink()
        path.with_name("part.bin").write_bytes(pickle.dumps({"a": Bomb(trace)}))
        index = {"metadata": {}, "weight_map": {"a": "part.bin"}}
        path.with_name("model.safetensors.index.json").write_text(json.dumps(index))
    return bool(found)


def pickled_adapter(folder: Path, trace: Path) -> bool:
    if not (folder / "config.json").is_file() or (folder / "encoder_config").is_dir():
        return False  # no library looks for adapters there
    (folder / "adapter_model.bin").write_bytes(pickle.dumps({"a": Bomb(trace)}))
    settings = {"peft_type": "LORA", "r": 2, "target_modules": "all-linear", "base_model_name_or_path": str(folder)}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return True


def pickled_arrays(folder: Path, trace: Path) -> bool:
    """Every file of numbers holds objects instead, and every other binary file of a pipeline is a pickle."""
    found = [path for path in folder.rglob("*") if path.suffix in (".npz", ".npy", ".bin", ".pkl", ".msgpack", "")]
    found = [path for path in found if path.is_file()]
    objects = np.array([Bomb(trace)], dtype=object)
    for path in found:
        with path.open("wb") as file:
            if path.suffix == ".npz":
                np.savez(file, objects)
            elif path.suffix in (".npy", "") and path.name == "vectors":
                np.save(file, objects)
            else:
                pickle.dump(Bomb(trace), file)
    return bool(found)


def function_of_a_plugin(folder: Path, trace: Path) -> bool:
    """A spaCy pipeline names a function that is registered, but not spaCy's own."""
    path = folder / "config.cfg"
    if not path.is_file():
        return False
    import spacy

    @spacy.registry.callbacks("tripwire.v1")
    def make():
        trace.touch()
        return lambda given: given

    text = path.read_text("utf-8").replace("before_creation = null\n", "")
    path.write_text(text + '\n[nlp.before_creation]\n@callbacks = "tripwire.v1"\n', "utf-8")
    return True


def another_pipeline(folder: Path, trace: Path) -> bool:
    """A spaCy pipeline takes a part of another one, which is hostile."""
    path = folder / "config.cfg"
    if not path.is_file():
        return False
    other = trace.with_name("other-pipeline")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    function_of_a_plugin(other, trace)
    text = path.read_text("utf-8").replace("pipeline = []", 'pipeline = ["x"]')
    path.write_text(text + f'\n[components.x]\nsource = "{other}"\n', "utf-8")
    return True


def nothing(folder: Path, trace: Path) -> bool:
    """No attack at all."""
    return True


def write_everywhere(folder: Path, trace: Path) -> None:
    """The code beside every settings file, and as files that are picked up by their names."""
    for place in {path.parent for path in folder.rglob("*.json")} | {folder}:
        write_code(place, trace)
    (folder / "custom_generate").mkdir(exist_ok=True)
    shutil.copy(folder / "own.py", folder / "custom_generate" / "generate.py")


ATTACKS: dict[str, Callable[[Path, Path], bool]] = {
    attack.__name__: attack
    for attack in (
        code_of_an_unknown_type,
        code_of_a_known_type,
        code_under_another_key,
        code_in_another_settings_file,
        code_of_the_tokenizer,
        code_in_another_folder,
        pickled_weights,
        pickled_shards,
        pickled_adapter,
        pickled_arrays,
        function_of_a_plugin,
        another_pipeline,
    )
}
ATTACKS_AND_NONE = ATTACKS | {"nothing": nothing}
