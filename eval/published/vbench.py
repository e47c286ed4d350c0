"""VBench 1.0 (Huang et al. 2024, arXiv 2311.17982) as data: dimensions, groups, ranges, weights and model files.

Numbers and file names are those of github.com/Vchitect/VBench (`scripts/constant.py`) and of the package vbench 0.1.5.
"""

import json
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from galaxydit.errors import GalaxyDiTError, listed, refusal
from galaxydit.eval.published.suite import Dimension, Suite, Weights

PACKAGE = "vbench"
FULL_INFO = "VBench_full_info.json"

CLIP_URL = "https://openaipublic.azureedge.net/clip/models"
CLIP_B32_SHA256 = "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af"  # OpenAI has it in the URL
CLIP_L14_SHA256 = "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836"
HUB = "https://huggingface.co"
GITHUB = "https://github.com"
RAFT_ZIP = "https://dl.dropboxusercontent.com/s/4j4z58wuv8o0mfz/models.zip"
AESTHETIC_URL = f"{GITHUB}/LAION-AI/aesthetic-predictor/raw/main/sa_0_4_vit_l_14_linear.pth"
DINO_GIT = f"{GITHUB}/facebookresearch/dino"
DINO_URL = "https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth"
DINO_PLACE = "dino_model/facebookresearch_dino_main"
DINO_ZIP = f"{DINO_GIT}/archive/refs/heads/main.zip"
MUSIQ_URL = f"{GITHUB}/chaofengc/IQA-PyTorch/releases/download/v0.1-weights/musiq_spaq_ckpt-358bb6af.pth"
GRIT_URL = "https://datarelease.blob.core.windows.net/grit/models/grit_b_densecap_objectdet.pth"
TAG2TEXT_URL = f"{HUB}/spaces/xinyu1205/recognize-anything/resolve/main/tag2text_swin_14m.pth"
USED = f"{HUB}/OpenGVLab/VBench_Used_Models/resolve/main"
APACHE = "Apache-2.0"
BSD = "BSD-3-Clause"
NONCOMMERCIAL = "Apache-2.0; code in pyiqa: PolyForm Noncommercial"
CLIP_B32 = Weights("clip_model", f"{CLIP_URL}/{CLIP_B32_SHA256}/ViT-B-32.pt", "MIT", sha256=CLIP_B32_SHA256)
CLIP_L14 = Weights("clip_model", f"{CLIP_URL}/{CLIP_L14_SHA256}/ViT-L-14.pt", "MIT", sha256=CLIP_L14_SHA256)
AESTHETIC_HEAD = Weights("aesthetic_model/emb_reader", AESTHETIC_URL, "MIT")
DINO_CODE = Weights(DINO_PLACE, DINO_GIT, APACHE, "hubconf.py", archive=DINO_ZIP, member="*")
DINO = Weights("dino_model", DINO_URL, APACHE)
MUSIQ = Weights("pyiqa_model", MUSIQ_URL, NONCOMMERCIAL, sha256="358bb6af")
AMT = Weights("amt_model", f"{HUB}/lalala125/AMT/resolve/main/amt-s.pth", "CC BY-NC 4.0")
RAFT = Weights("raft_model/models", RAFT_ZIP, BSD, "raft-things.pth", archive=RAFT_ZIP, member="models/raft-things.pth")
GRIT = Weights("grit_model", GRIT_URL, "MIT")
TAG2TEXT = Weights("caption_model", TAG2TEXT_URL, APACHE)
UMT = Weights("umt_model", f"{USED}/l16_ptk710_ftk710_ftk400_f16_res224.pth", "MIT")
VICLIP = (
    Weights("ViCLIP", f"{USED}/ViClip-InternVid-10M-FLT.pth", "Apache-2.0"),
    Weights("ViCLIP", "https://raw.githubusercontent.com/openai/CLIP/main/clip/bpe_simple_vocab_16e6.txt.gz", "MIT"),
)
BERT = ("bert-base-uncased",)  # Apache-2.0
QUALITY = "Quality"
SEMANTIC = "Semantic"
DETECTRON2 = "a checkout of detectron2 (`setup --detectron2`)"
# what upstream averages over, see `counted`
PAIRS = "cnt_per_video"
FRAMES = "frame_count"
LIST = "frame_results"
REAL = "measured"
RANDOM = "runs with random weights"
NO_OBJECT = "runs with random weights, which name no object: no score"
BEGUN = "begun with random weights, not run to its end"

GROUP_WEIGHTS = {QUALITY: 4.0, SEMANTIC: 1.0}  # in the total
_of_quality = partial(Dimension, group=QUALITY, proof=RANDOM)
_of_meaning = partial(Dimension, group=SEMANTIC, proof=RANDOM)
_of_objects = partial(_of_meaning, custom=False, weights=(GRIT,), hub=BERT, needs=DETECTRON2)
DIMENSIONS = {
    dimension.name: dimension
    for dimension in (
        _of_quality("subject_consistency", low=0.1462, counted=PAIRS, weights=(DINO_CODE, DINO)),
        _of_quality("background_consistency", low=0.2615, counted=PAIRS, weights=(CLIP_B32,)),
        _of_quality("temporal_flickering", low=0.6293, filtered=25, proof=REAL),
        _of_quality("motion_smoothness", low=0.706, high=0.9975, weights=(AMT,)),
        _of_quality("aesthetic_quality", weights=(CLIP_L14, AESTHETIC_HEAD)),
        _of_quality("imaging_quality", video_scale=100.0, weights=(MUSIQ,)),
        _of_quality("dynamic_degree", weight=0.5, weights=(RAFT,)),
        _of_objects("object_class", counted=FRAMES),
        _of_objects("multiple_objects", counted=FRAMES),
        _of_meaning("human_action", weights=(UMT,)),
        _of_objects("color", partial=True, proof=NO_OBJECT),
        _of_objects("spatial_relationship", counted=LIST),
        _of_meaning("scene", high=0.8222, custom=False, counted=FRAMES, weights=(TAG2TEXT,), hub=BERT),
        _of_meaning("appearance_style", low=0.0009, high=0.2855, custom=False, counted=LIST, weights=(CLIP_B32,)),
        _of_meaning("temporal_style", high=0.364, weights=VICLIP),
        _of_meaning("overall_consistency", high=0.364, weights=VICLIP, proof=BEGUN),
    )
}
VBENCH = Suite("vbench", "VBench 1.0", PACKAGE, "0.1.5", FULL_INFO, "VBENCH_CACHE_DIR", DIMENSIONS, GROUP_WEIGHTS)


def vbench_prompts(count: int | None = None, dimensions: Sequence[str] | None = None) -> tuple[str, ...]:
    """The first `count` prompts of VBench's `dimensions`, by default all, from the package without importing it.

    Raises GalaxyDiTError without vbench, for an unknown dimension and for too large a `count`.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None or not (path := Path(spec.origin).with_name(FULL_INFO)).is_file():
        cure = f"its prompts alone come with `pip install --no-deps {PACKAGE}`"
        raise refusal("suite", PACKAGE, f"the installed package with its {FULL_INFO}", cure)
    entries = [entry for entry in json.loads(path.read_text(encoding="utf-8")) if entry.get("prompt_en")]
    known = {dimension for entry in entries for dimension in entry["dimension"]}
    wanted = known
    if dimensions is not None:
        wanted = set(listed("dimensions", dimensions))
    if unknown := sorted(wanted - known):
        raise GalaxyDiTError(f"dimensions has {unknown[0]!r}: expected some of {', '.join(sorted(known))}")
    prompts = tuple(dict.fromkeys(entry["prompt_en"] for entry in entries if wanted & set(entry["dimension"])))
    if count is not None and count > len(prompts):
        raise refusal("count", count, f"at most the {len(prompts)} prompts that there are", "take fewer")
    return prompts[:count]
