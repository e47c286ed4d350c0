"""Find a video pipeline by name, folder or hub id and load it, unchanged, with diffusers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import diffusers
import torch
from accelerate import cpu_offload
from diffusers import ComponentsManager, DiffusionPipeline, UniPCMultistepScheduler
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from galaxydit.errors import GalaxyDiTError, check_choice, proposing, refusal, short_reason
from galaxydit.foreign_text import logger_of
from galaxydit.pipelines.additions import compile_blocks, set_attention
from galaxydit.pipelines.interrupts import heeding_interrupts
from galaxydit.pipelines.lora import add_loras
from galaxydit.pipelines.memory import is_out_of_memory
from galaxydit.pipelines.model_names import (
    INDEX,
    MODULAR_INDEX,
    UNSAFE_FILES,
    UNUSED_PARTS,
    check_model,
    local_folder,
)
from galaxydit.pipelines.modular import class_in, folders_in, load_modular, place_modular
from galaxydit.pipelines.published_models import Checkpoint, checkpoint_of, recommended_settings
from galaxydit.pipelines.runs.unit import flatten
from galaxydit.pipelines.scaled_weights import refuse_scales
from galaxydit.pipelines.settings import Offload
from galaxydit.pipelines.single_file import load_transformer
from galaxydit.profiles.planned_scheduler import with_saved_levels
from galaxydit.runtime.recognition import transformers_of

logger = logger_of(__name__)
WEIGHTS = (".safetensors", ".bin")


@proposing
@heeding_interrupts()
def load_pipeline(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    revision: str | None = None,
    offload: Offload = "none",
    base: str | Path | None = None,
    lora: str | None = None,
    lora_2: str | None = None,
    compile: bool = False,
    attention: str | None = None,
) -> DiffusionPipeline:
    """A diffusers pipeline, not yet accelerated, ready to call; a modular one where the model has no other.

    Args:
        name_or_path: "wan-tiny", a name in `published_models.CHECKPOINTS` or its hub id, another hub id, a folder with
            a model_index.json (of a modular pipeline a modular_model_index.json), or the .safetensors or .gguf file of
            a transformer. A recognised model has its authors' flow shift; `recommended_settings(pipe)` are for the
            call.
        dtype: of all components that `CHECKPOINTS` does not list by name; by default the model's own, else bfloat16.
            The autoencoder of Wan stays in float32, as its authors advise.
        device: by default the GPU if there is one.
        revision: a branch, tag or commit on the hub.
        offload: keeps weights in CPU memory but for one component ("model"), a few layers ("group") or each layer
            ("sequential": least memory, slowest).
        base: of a single file: the model, by the other kinds of name, that has all other parts.
        lora: of the transformer (`galaxydit.pipelines.lora`).
        lora_2: of a second transformer.
        compile: compile its blocks (`galaxydit.pipelines.additions`).
        attention: a backend of diffusers, such as "sage".

    Raises GalaxyDiTError for a model that does not load or fit, or names an attention kernel of the hub;
    FileNotFoundError for one that is not there; ConnectionError without the hub.
    """
    check_choice("offload", offload, get_args(Offload))
    name = str(name_or_path)
    check_model(name, None if base is None else str(base))
    file = None if base is None else name
    name = name if base is None else str(base)
    folder = local_folder(name)
    checkpoint = checkpoint_of(name) if folder is None else None
    source = name if folder is None else str(folder)
    dtypes: dict[str, torch.dtype] = {"default": torch.bfloat16}
    if checkpoint is not None:
        source, revision = checkpoint.hub_id, revision or checkpoint.revision
        dtypes |= {part: getattr(torch, word) for part, word in checkpoint.dtypes.items()}
    if dtype is not None:
        dtypes["default"] = dtype
    index = _download_index(source, revision) if folder is None else _index_in(folder)
    is_modular = index.name == MODULAR_INDEX
    if is_modular and file is not None:
        raise refusal("base", str(base), "no modular pipeline", "load it in Python, with a transformer of diffusers")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    default_dtype = torch.get_default_dtype()
    try:
        if "AutoencoderKLWan" in index.read_text(encoding="utf-8"):
            dtypes["vae"] = torch.float32
        given: dict[str, Any] = {"dtype": dtypes, "revision": revision}
        of_transformer = dtypes.get("transformer", dtypes["default"])
        if file is not None:
            given["transformer"] = load_transformer(file, index, source, revision, of_transformer)
        elif checkpoint is not None and checkpoint.transformer != "transformer":
            kind = getattr(diffusers, json.loads(index.read_text(encoding="utf-8"))["transformer"][1])
            place = {"subfolder": checkpoint.transformer, "revision": revision}
            given["transformer"] = kind.from_pretrained(source, **place, dtype=of_transformer)
        manager = ComponentsManager() if is_modular and offload == "model" else None
        pipe = _read(source, folder, index, given, manager)
        _set_scheduler(pipe, checkpoint)
        if hasattr(pipe, "scheduler"):
            pipe.scheduler = with_saved_levels(pipe.scheduler)
        if lora is not None or lora_2 is not None:
            add_loras(pipe, lora, lora_2)
        if is_modular:
            place_modular(pipe, device, offload, manager)
        else:
            _place(pipe, device, offload)
        if attention is not None:
            set_attention(transformers_of(pipe).values(), attention)
        if compile:
            compile_blocks(pipe)
    except GalaxyDiTError:
        raise
    except Exception as error:  # whatever libraries raise for damaged weights and for parts that do not fit
        if isinstance(error, OSError) and folder is None:  # of the hub, with its own words
            raise
        reason = short_reason(error, 300)
        if is_out_of_memory(error):
            expected = f"one that fits into the memory of {device} ({reason})"
            cure = "keep its weights in CPU memory with --offload model (load_pipeline(offload=...) in Python)"
        else:
            expected = f"a pipeline that diffusers {diffusers.__version__} can load ({reason})"
            cure = "write or download it again, or take another version"
        raise refusal("model", file or name, expected, cure) from error
    finally:
        torch.set_default_dtype(default_dtype)  # diffusers leaves another where it fails within a model
    return pipe


def _read(
    source: str, folder: Path | None, index: Path, given: dict[str, Any], manager: ComponentsManager | None
) -> Any:
    """The pipeline on the CPU, from a local folder or the hub, with what is `given` to `from_pretrained`.

    Its files are looked at before diffusers reads them.
    """
    is_modular, has_transformer = index.name == MODULAR_INDEX, "transformer" in given
    # DiffusionPipeline itself ignores a given part that the pipeline's class calls optional (diffusers 0.42).
    loader = getattr(diffusers, class_in(index)) if has_transformer else DiffusionPipeline
    if folder is not None:
        files = folder
    elif is_modular:
        files = _download_modular(source, given["revision"], index)
    else:
        files = _download(loader, source, given["revision"], {"transformer": None} if has_transformer else {})
    _refuse_hub_kernels(files)
    variant = _variant(files)
    loaded = _loaded(files / index.name, variant)
    refuse_scales(path for path in loaded if not has_transformer or path.parent.name != "transformer")
    if variant:
        logger.warning("%s has its weights in %s alone, so these are loaded", source, variant)
        given = given | {"variant": variant}
    if is_modular:
        return load_modular(files, manager, **{name: each for name, each in given.items() if name != "revision"})
    return loader.from_pretrained(source, **given)


def _set_scheduler(pipe: Any, checkpoint: Checkpoint | None) -> None:
    """Give the scheduler what the authors of a recognised model set."""
    if checkpoint is not None and checkpoint.scheduler:
        pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, **checkpoint.scheduler)
    if checkpoint is not None and (shift := checkpoint.settings.flow_shift) is not None:
        pipe.scheduler = UniPCMultistepScheduler.from_config(pipe.scheduler.config, flow_shift=shift)
    elif (shift := recommended_settings(pipe).flow_shift) is not None:  # of a local copy
        pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config, flow_shift=shift)


def _download(loader: type[DiffusionPipeline], source: str, revision: str | None, given: dict[str, Any]) -> Path:
    """The local folder of a hub model without the parts `given`; weights in fp16 only where the hub has no others."""
    folder = Path(loader.download(source, revision=revision, **given))
    if any(any(folder.glob(f"*/*{suffix}")) for suffix in WEIGHTS):
        return folder
    return Path(loader.download(source, revision=revision, variant="fp16", **given))


def _download_modular(source: str, revision: str | None, index: Path) -> Path:
    """The local folder of a modular pipeline on the hub, with the parts that inputs of this project use."""
    unused = UNUSED_PARTS.get(class_in(index), ())
    used = [folder for name, folder in folders_in(index).items() if name not in unused]
    patterns = [MODULAR_INDEX, *(f"{folder}/*" for folder in used)]
    code = [f"*{suffix}" for suffix in (*UNSAFE_FILES, ".py")]
    return Path(snapshot_download(source, revision=revision, allow_patterns=patterns, ignore_patterns=code))


def _index_in(folder: Path) -> Path:
    """The index of a pipeline in a folder, which is a modular one where it has no other."""
    return folder / INDEX if (folder / INDEX).is_file() else folder / MODULAR_INDEX


def _loaded(index: Path, variant: str | None) -> Iterator[Path]:
    """The safetensors files of the components that a pipeline's index names, without those of other variants."""
    for folder in folders_in(index).values():
        for path in sorted((index.parent / folder).glob("*.safetensors")):
            if _variant_of(path) in ("", variant):
                yield path


def _variant_of(path: Path) -> str:
    parts = path.name.split(".")
    return parts[1].partition("-")[0] if len(parts) > 2 else ""


def _variant(folder: Path) -> str | None:
    """The variant, such as "fp16" in "model.fp16-00001-of-00002.safetensors", that alone a component has; else None."""
    for component in sorted(path for path in folder.iterdir() if path.is_dir()):
        variants = {_variant_of(path) for path in component.iterdir() if path.suffix in WEIGHTS}
        if variants and "" not in variants:
            return min(variants)
    return None


def _place(pipe: DiffusionPipeline, device: torch.device, offload: Offload) -> None:
    if offload == "none":
        pipe.to(device)
    elif offload == "model":
        pipe.enable_model_cpu_offload(device=device)
    elif offload == "sequential" and device.type == "cpu":
        # diffusers names the device "cpu:0", and PyTorch copies parameters to it as plain tensors, which Accelerate
        # (1.15) then takes for another type.
        for part in pipe.components.values():
            if isinstance(part, torch.nn.Module):
                cpu_offload(part, device, offload_buffers=len(part._parameters) > 0)
    elif offload == "sequential":
        pipe.enable_sequential_cpu_offload(device=device)
    else:
        pipe.enable_group_offload(device, offload_type="leaf_level", use_stream=device.type == "cuda")


def _refuse_hub_kernels(folder: Path) -> None:
    """Raise GalaxyDiTError for an attention kernel of the hub, whose code transformers would fetch and run."""
    for path in sorted(folder.glob("*/config.json")):
        for name, value in flatten(json.loads(path.read_text(encoding="utf-8"))):
            if "attn_implementation" in name and isinstance(value, str) and "/" in value:
                raise refusal(
                    f"{path.parent.name}.{name}",
                    value,
                    "an implementation that transformers brings, such as sdpa",
                    f"remove it from {path}; whoever trusts a kernel calls set_attn_implementation once it is loaded",
                )


def _download_index(name: str, revision: str | None) -> Path:
    """A hub model's index, fetched first, because diffusers calls an unreachable hub a missing file: model_index.json,
    or that of a modular pipeline where there is no other."""
    try:
        try:
            return Path(hf_hub_download(name, INDEX, revision=revision))
        except EntryNotFoundError:
            return Path(hf_hub_download(name, MODULAR_INDEX, revision=revision))
    except RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"model is {name!r}, which is neither a local folder nor a public model on the hub: check the spelling, "
            "or log in with `hf auth login` if it is private"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ConnectionError(
            f"model is {name!r}, which is not in the local cache, and the hub cannot be reached: "
            "connect to the internet, or pass a folder that holds the model"
        ) from error
    except HfHubHTTPError as error:
        raise FileNotFoundError(
            f"model is {name!r} at revision {revision or 'main'}, where the hub has no {INDEX} and no {MODULAR_INDEX}: "
            f"pass a model in diffusers format and one of its revisions ({error})"
        ) from error
