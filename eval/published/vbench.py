"""VBench 1.0 as data: dimensions, groups, ranges, coefficients, and the model files of each dimension.

Source: VBench (Huang et al. 2024, arXiv 2311.17982); the numbers and file names are those of github.com/Vchitect/VBench
(`scripts/constant.py`) and of the package vbench 0.1.5.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, check_choice, refusal

PACKAGE = "vbench"
FULL_INFO = "VBench_full_info.json"  # the package's list of prompts with dimensions
CACHE_VARIABLE = "VBENCH_CACHE_DIR"  # environment variable with the folder of model files


@dataclass(frozen=True)
class Weights:
    """A model file: folder below the cache folder, source, and name, by default the URL's last part."""

    folder: str
    url: str
    name: str = ""

    @property
    def path(self) -> str:
        """Below the cache folder."""
        return f"{self.folder}/{self.name or self.url.rpartition('/')[2]}"


@dataclass(frozen=True)
class Dimension:
    """One dimension of a benchmark.

    Attributes:
        low, high: normalised score = (score - low) / (high - low).
        weight: weight in the mean of its group.
        custom: whether it takes other prompts than the benchmark's.
        video_scale: scale of a single video's score, relative to the dimension's.
        weights: model files that must be in the cache folder.
        hub: models that must be in the cache of huggingface_hub.
    """

    name: str
    group: str
    low: float = 0.0
    high: float = 1.0
    weight: float = 1.0
    custom: bool = True
    video_scale: float = 1.0
    weights: tuple[Weights, ...] = ()
    hub: tuple[str, ...] = ()


CLIP_URL = "https://openaipublic.azureedge.net/clip/models"
HUB = "https://huggingface.co"
CLIP_B32 = Weights(
    "clip_model", f"{CLIP_URL}/40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af/ViT-B-32.pt"
)
CLIP_L14 = Weights(
    "clip_model", f"{CLIP_URL}/b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836/ViT-L-14.pt"
)
AESTHETIC_HEAD = Weights(
    "aesthetic_model/emb_reader", "https://github.com/LAION-AI/aesthetic-predictor/raw/main/sa_0_4_vit_l_14_linear.pth"
)
DINO_CODE = Weights(
    "dino_model/facebookresearch_dino_main", "https://github.com/facebookresearch/dino", name="hubconf.py"
)
DINO = Weights("dino_model", "https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth")
MUSIQ = Weights(
    "pyiqa_model",
    "https://github.com/chaofengc/IQA-PyTorch/releases/download/v0.1-weights/musiq_spaq_ckpt-358bb6af.pth",
)
AMT = Weights("amt_model", f"{HUB}/lalala125/AMT/resolve/main/amt-s.pth")
RAFT = Weights(
    "raft_model/models", "https://dl.dropboxusercontent.com/s/4j4z58wuv8o0mfz/models.zip", name="raft-things.pth"
)
GRIT = Weights("grit_model", "https://datarelease.blob.core.windows.net/grit/models/grit_b_densecap_objectdet.pth")
TAG2TEXT = Weights("caption_model", f"{HUB}/spaces/xinyu1205/recognize-anything/resolve/main/tag2text_swin_14m.pth")
UMT = Weights("umt_model", f"{HUB}/OpenGVLab/VBench_Used_Models/resolve/main/l16_ptk710_ftk710_ftk400_f16_res224.pth")
VICLIP = (
    Weights("ViCLIP", f"{HUB}/OpenGVLab/VBench_Used_Models/resolve/main/ViClip-InternVid-10M-FLT.pth"),
    Weights("ViCLIP", "https://raw.githubusercontent.com/openai/CLIP/main/clip/bpe_simple_vocab_16e6.txt.gz"),
)
QUALITY, SEMANTIC = "Quality", "Semantic"

SAMPLES = 5  # videos per prompt in the protocol
GROUP_WEIGHTS = {QUALITY: 4.0, SEMANTIC: 1.0}  # in the total
DIMENSIONS = {
    dimension.name: dimension
    for dimension in (
        Dimension("subject_consistency", QUALITY, low=0.1462, weights=(DINO_CODE, DINO)),
        Dimension("background_consistency", QUALITY, low=0.2615, weights=(CLIP_B32,)),
        Dimension("temporal_flickering", QUALITY, low=0.6293),
        Dimension("motion_smoothness", QUALITY, low=0.706, high=0.9975, weights=(AMT,)),
        Dimension("aesthetic_quality", QUALITY, weights=(CLIP_L14, AESTHETIC_HEAD)),
        Dimension("imaging_quality", QUALITY, video_scale=100.0, weights=(MUSIQ,)),
        Dimension("dynamic_degree", QUALITY, weight=0.5, weights=(RAFT,)),
        Dimension("object_class", SEMANTIC, custom=False, weights=(GRIT,)),
        Dimension("multiple_objects", SEMANTIC, custom=False, weights=(GRIT,)),
        Dimension("human_action", SEMANTIC, weights=(UMT,)),
        Dimension("color", SEMANTIC, custom=False, weights=(GRIT,)),
        Dimension("spatial_relationship", SEMANTIC, custom=False, weights=(GRIT,)),
        Dimension("scene", SEMANTIC, high=0.8222, custom=False, weights=(TAG2TEXT,), hub=("bert-base-uncased",)),
        Dimension("appearance_style", SEMANTIC, low=0.0009, high=0.2855, custom=False, weights=(CLIP_B32,)),
        Dimension("temporal_style", SEMANTIC, high=0.364, weights=VICLIP),
        Dimension("overall_consistency", SEMANTIC, high=0.364, weights=VICLIP),
    )
}


def select(names: list[str]) -> tuple[Dimension, ...]:
    """The dimensions of these names, each once; raises GalaxyDiTError without names and for unknown ones."""
    if not names:
        raise refusal("dimensions", names, f"some of {', '.join(DIMENSIONS)}", "name at least one")
    for name in names:
        check_choice("dimensions", name, list(DIMENSIONS))
    return tuple(DIMENSIONS[name] for name in dict.fromkeys(names))


def vbench_prompts(count: int | None = None, dimensions: Sequence[str] | None = None) -> tuple[str, ...]:
    """The first `count` prompts, by default all, of these dimensions, by default of all; each once.

    They are read from the installed package (arXiv 2311.17982), which is not imported. Raises GalaxyDiTError if it is
    not there, and for an unknown dimension and for more prompts than there are.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None or not (path := Path(spec.origin).with_name(FULL_INFO)).is_file():
        cure = f"its prompts alone come with `pip install --no-deps {PACKAGE}`"
        raise refusal("suite", PACKAGE, f"the installed package with its {FULL_INFO}", cure)
    entries = [entry for entry in json.loads(path.read_text(encoding="utf-8")) if entry.get("prompt_en")]
    known = {dimension for entry in entries for dimension in entry["dimension"]}
    wanted = known if dimensions is None else set(dimensions)
    if unknown := sorted(wanted - known):
        raise GalaxyDiTError(f"dimensions has {unknown[0]!r}: expected some of {', '.join(sorted(known))}")
    prompts = tuple(dict.fromkeys(entry["prompt_en"] for entry in entries if wanted & set(entry["dimension"])))
    if count is not None and count > len(prompts):
        raise refusal("count", count, f"at most the {len(prompts)} prompts that there are", "take fewer")
    return prompts[:count]
