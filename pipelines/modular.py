"""diffusers' modular pipelines: load them, and call them as ordinary pipelines are called."""

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from diffusers import ComponentsManager, DiffusionPipeline, ModularPipeline
from torch import nn

from galaxydit.errors import refusal
from galaxydit.pipelines.model_names import MODULAR_INDEX, UNUSED_PARTS

DECODER = "decode"  # the block that decodes, in diffusers' pipelines


def parameters_of(pipe: DiffusionPipeline | ModularPipeline) -> Mapping[str, inspect.Parameter]:
    """Parameters of the pipeline's call by name; of a modular pipeline, the inputs of its blocks."""
    if not isinstance(pipe, ModularPipeline):
        return inspect.signature(type(pipe).__call__).parameters
    kind = inspect.Parameter.KEYWORD_ONLY
    named = [each for each in pipe.blocks.inputs if each.name is not None]
    # Which inputs are required depends on the others, so none is marked so.
    return {each.name: inspect.Parameter(each.name, kind, default=each.default) for each in named}


def call(pipe: DiffusionPipeline | ModularPipeline, arguments: Mapping[str, Any], *, decode: bool) -> Any:
    """The output of one call, with `frames` `(1, frames, height, width, 3)`, or latents without `decode`.

    Of a modular pipeline also `latents`, and `audio` and `sampling_rate` where it makes sound.
    """
    if not isinstance(pipe, ModularPipeline):
        return pipe(**arguments, output_type="np" if decode else "latent")
    if decode:
        state = pipe(**arguments, output_type="np")
    else:
        state = _without_decoder(pipe)(**arguments)
    return SimpleNamespace(
        frames=state.get("videos"),
        latents=state.get("latents"),
        audio=state.get("audio"),
        sampling_rate=state.get("sampling_rate"),
    )


def _without_decoder(pipe: ModularPipeline) -> ModularPipeline:
    """A pipeline of the same components that ends with the denoised latents."""
    blocks = pipe.blocks  # a copy
    if DECODER not in blocks.sub_blocks:
        expected = f"a modular pipeline whose last block is called {DECODER!r}"
        raise refusal("pipe", type(pipe).__name__, expected, "decode its latents, too")
    blocks.sub_blocks.pop(DECODER)
    part = blocks.init_pipeline()
    for name, component in pipe.components.items():
        setattr(part, name, component)  # also the VAE, from which blocks read the size of the latents
    return part


def hide_progress(pipe: DiffusionPipeline | ModularPipeline) -> None:
    """Let the pipeline show no progress bars."""
    pipe.set_progress_bar_config(disable=True)
    if isinstance(pipe, ModularPipeline):
        for block in _blocks_in(pipe._blocks):  # diffusers reaches the outermost alone
            block.set_progress_bar_config(disable=True)


def _blocks_in(block: Any) -> Iterator[Any]:
    for inner in block.sub_blocks.values():
        if hasattr(inner, "set_progress_bar_config"):
            yield inner
        yield from _blocks_in(inner)


def load_modular(folder: Path, manager: ComponentsManager | None, **options: Any) -> ModularPipeline:
    """The modular pipeline in a folder, on the CPU, with all parts that inputs of this project use.

    `options` are those of diffusers' `from_pretrained`; code in the folder is not run. Raises GalaxyDiTError for a part
    that is not in the folder or does not load.
    """
    pipe: ModularPipeline = ModularPipeline.from_pretrained(str(folder), components_manager=manager)
    folders = folders_in(folder / MODULAR_INDEX)
    unused = UNUSED_PARTS.get(type(pipe).__name__, ())
    names = [name for name in pipe.pretrained_component_names if name not in unused]
    for name in names:
        if not (folder / folders.get(name, name)).is_dir():
            expected = f"a folder {name} beside {MODULAR_INDEX}"
            raise refusal("model", str(folder), expected, "write it again with save_pretrained of a whole pipeline")
    # The index may name other sources: only what was checked is loaded.
    pipe.load_components(names, pretrained_model_name_or_path=str(folder), **options)
    for name in names:
        if getattr(pipe, name) is None:  # diffusers has logged the reason
            expected = f"a folder {name} that diffusers can load"
            raise refusal("model", str(folder), expected, "write or download it again")
    return pipe


def place_modular(pipe: ModularPipeline, device: torch.device, offload: str, manager: ComponentsManager | None) -> None:
    """Put a modular pipeline on the device, as `load_pipeline` does with others."""
    parts = [part for part in pipe.components.values() if isinstance(part, nn.Module)]
    if manager is not None and device.type != "cpu":  # a CPU has its weights where they would be kept
        manager.enable_auto_cpu_offload(device=device)
    elif offload == "group":
        from diffusers.hooks import apply_group_offloading

        for part in parts:
            apply_group_offloading(part, device, offload_type="leaf_level", use_stream=device.type == "cuda")
    elif offload == "sequential":
        from accelerate import cpu_offload

        for part in parts:
            cpu_offload(part, device, offload_buffers=len(part._parameters) > 0)
    else:
        pipe.to(device)


def folders_in(index: Path) -> dict[str, str]:
    """The folder of each part that a pipeline's index names. Raises GalaxyDiTError for one outside the model's."""
    folders = {}
    for name, entry in json.loads(index.read_text(encoding="utf-8")).items():
        if not isinstance(entry, list):
            continue
        place = entry[2] if len(entry) == 3 else {}  # of a modular pipeline
        folders[name] = place.get("subfolder") or name
        if Path(folders[name]).name != folders[name] or folders[name] == "..":
            expected = "the name of a folder beside the index"
            raise refusal(f"{index.name}: {name}", folders[name], expected, "write it again with save_pretrained")
    return folders


def class_in(index: Path) -> str:
    """The class of the pipeline that an index names."""
    return str(json.loads(index.read_text(encoding="utf-8"))["_class_name"])
