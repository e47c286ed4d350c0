"""VBench 1.0 and VBench-2.0 as data: dimensions, groups, ranges, coefficients, and the model files of each dimension.

Sources: VBench (Huang et al. 2024, arXiv 2311.17982) and VBench-2.0 (Zheng et al. 2025, arXiv 2503.21755); the numbers
and file names are those of github.com/Vchitect/VBench (`scripts/constant.py`, `VBench-2.0/scripts/constant.py`) and of
the packages vbench 0.1.5 and vbench2 0.1.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from galaxydit.errors import GalaxyDiTError


@dataclass(frozen=True)
class Weights:
    """A model file or folder that the benchmark would download: its path below the cache folder, and its source."""

    path: str
    url: str


@dataclass(frozen=True)
class Dimension:
    """One dimension of a benchmark.

    Attributes:
        low, high: normalised score = (score - low) / (high - low).
        weight: weight in the mean of its group.
        custom: whether it takes other prompts than the benchmark's.
        samples: videos per prompt in the protocol.
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
    samples: int = 5
    video_scale: float = 1.0
    weights: tuple[Weights, ...] = ()
    hub: tuple[str, ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as its package defines it.

    Attributes:
        cache_variable: environment variable with the folder of model files.
        full_info: the package's file of prompts.
        group_weights: weight of each group in the total.
        longest_name: characters of a prompt in a file name; None for all.
    """

    package: str
    title: str
    cache_variable: str
    full_info: str
    dimensions: Mapping[str, Dimension]
    group_weights: Mapping[str, float]
    longest_name: int | None = None

    def group(self, name: str) -> tuple[Dimension, ...]:
        """The dimensions of a group."""
        return tuple(dimension for dimension in self.dimensions.values() if dimension.group == name)

    def select(self, names: list[str]) -> tuple[Dimension, ...]:
        """The dimensions of these names, each once; raises GalaxyDiTError without names and for unknown ones."""
        if not names:
            raise GalaxyDiTError(f"dimensions is empty, allowed are {', '.join(self.dimensions)}: name at least one")
        for name in names:
            if name not in self.dimensions:
                raise GalaxyDiTError(
                    f"dimensions has {name!r}, allowed for {self.title} are {', '.join(self.dimensions)}: "
                    "check the spelling"
                )
        return tuple(self.dimensions[name] for name in dict.fromkeys(names))


CLIP_URL = "https://openaipublic.azureedge.net/clip/models"
HUB = "https://huggingface.co"
CLIP_B32 = Weights(
    "clip_model/ViT-B-32.pt", f"{CLIP_URL}/40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af/ViT-B-32.pt"
)
CLIP_L14 = Weights(
    "clip_model/ViT-L-14.pt", f"{CLIP_URL}/b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836/ViT-L-14.pt"
)
AESTHETIC_HEAD = Weights(
    "aesthetic_model/emb_reader/sa_0_4_vit_l_14_linear.pth",
    "https://github.com/LAION-AI/aesthetic-predictor/raw/main/sa_0_4_vit_l_14_linear.pth",
)
DINO_CODE = Weights("dino_model/facebookresearch_dino_main/hubconf.py", "https://github.com/facebookresearch/dino")
DINO = Weights(
    "dino_model/dino_vitbase16_pretrain.pth",
    "https://dl.fbaipublicfiles.com/dino/dino_vitbase16_pretrain/dino_vitbase16_pretrain.pth",
)
MUSIQ = Weights(
    "pyiqa_model/musiq_spaq_ckpt-358bb6af.pth",
    "https://github.com/chaofengc/IQA-PyTorch/releases/download/v0.1-weights/musiq_spaq_ckpt-358bb6af.pth",
)
AMT = Weights("amt_model/amt-s.pth", f"{HUB}/lalala125/AMT/resolve/main/amt-s.pth")
RAFT = Weights("raft_model/models/raft-things.pth", "https://dl.dropboxusercontent.com/s/4j4z58wuv8o0mfz/models.zip")
GRIT = Weights(
    "grit_model/grit_b_densecap_objectdet.pth",
    "https://datarelease.blob.core.windows.net/grit/models/grit_b_densecap_objectdet.pth",
)
TAG2TEXT = Weights(
    "caption_model/tag2text_swin_14m.pth",
    f"{HUB}/spaces/xinyu1205/recognize-anything/resolve/main/tag2text_swin_14m.pth",
)
UMT = Weights(
    "umt_model/l16_ptk710_ftk710_ftk400_f16_res224.pth",
    f"{HUB}/OpenGVLab/VBench_Used_Models/resolve/main/l16_ptk710_ftk710_ftk400_f16_res224.pth",
)
VICLIP = (
    Weights(
        "ViCLIP/ViClip-InternVid-10M-FLT.pth",
        f"{HUB}/OpenGVLab/VBench_Used_Models/resolve/main/ViClip-InternVid-10M-FLT.pth",
    ),
    Weights(
        "ViCLIP/bpe_simple_vocab_16e6.txt.gz",
        "https://raw.githubusercontent.com/openai/CLIP/main/clip/bpe_simple_vocab_16e6.txt.gz",
    ),
)
QUALITY, SEMANTIC = "Quality", "Semantic"

VBENCH = Benchmark(
    package="vbench",
    title="VBench",
    cache_variable="VBENCH_CACHE_DIR",
    full_info="VBench_full_info.json",
    group_weights={QUALITY: 4.0, SEMANTIC: 1.0},
    dimensions={
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
    },
)

LLAVA = Weights("lmms-lab/LLaVA-Video-7B-Qwen2", f"{HUB}/lmms-lab/LLaVA-Video-7B-Qwen2")
QWEN = Weights("Qwen/Qwen2.5-7B-Instruct", f"{HUB}/Qwen/Qwen2.5-7B-Instruct")
DRIVE = "https://drive.google.com/uc?id="
ARCFACE = Weights("arcface/resnet18_110.pth", f"{DRIVE}1m387vGTQ4GW4I4PQfBsCC-Y9aEp6zjvy")
YOLO_L = Weights(
    "YOLO-World/yolo_world_v2_l_obj365v1_goldg_pretrain_1280ft-9babe3f6.pth",
    f"{DRIVE}1Jm05vcIKzETX-mSLXeKijbd1sv2PaTSe",
)
ANATOMY = (
    Weights(
        "YOLO-World/yolo_world_v2_xl_obj365v1_goldg_cc3mlite_pretrain-5daf1395.pth",
        f"{DRIVE}1qo-K1kum7yiEwIlN1TWDvABXX6qriUen",
    ),
    Weights("anomaly_detector/human.pth", f"{DRIVE}1mlSURYOi_vN9ST1wzEhJaVO6-ZoES8UT"),
    Weights("anomaly_detector/face.pth", f"{DRIVE}1e2qTjrtsYlkWLql0qj8DqaNZ09KuV8Qo"),
    Weights("anomaly_detector/hand.pth", f"{DRIVE}1j3QeAcAtdLe5BFgK-c33UaHV6-iUto0i"),
)
CREATIVITY, COMMONSENSE, CONTROLLABILITY = "Creativity", "Commonsense", "Controllability"
HUMAN_FIDELITY, PHYSICS = "Human Fidelity", "Physics"


def _second(name: str, group: str, *weights: Weights, custom: bool = False, samples: int = 3) -> Dimension:
    return Dimension(name, group, custom=custom, samples=samples, weights=weights)


VBENCH2 = Benchmark(
    package="vbench2",
    title="VBench-2.0",
    cache_variable="VBENCH2_CACHE_DIR",
    full_info="VBench2_full_info.json",
    longest_name=180,
    group_weights=dict.fromkeys((CREATIVITY, COMMONSENSE, CONTROLLABILITY, HUMAN_FIDELITY, PHYSICS), 1.0),
    dimensions={
        dimension.name: dimension
        for dimension in (
            _second("Composition", CREATIVITY, LLAVA),
            _second("Diversity", CREATIVITY, custom=True, samples=20),
            _second("Instance_Preservation", COMMONSENSE, YOLO_L),
            _second("Motion_Rationality", COMMONSENSE, LLAVA),
            _second("Camera_Motion", CONTROLLABILITY),
            _second("Complex_Landscape", CONTROLLABILITY, LLAVA, QWEN),
            _second("Complex_Plot", CONTROLLABILITY, LLAVA, QWEN),
            _second("Dynamic_Attribute", CONTROLLABILITY, LLAVA),
            _second("Dynamic_Spatial_Relationship", CONTROLLABILITY, LLAVA),
            _second("Human_Interaction", CONTROLLABILITY, LLAVA, QWEN, custom=True),
            _second("Motion_Order_Understanding", CONTROLLABILITY, LLAVA, QWEN),
            _second("Human_Anatomy", HUMAN_FIDELITY, *ANATOMY, custom=True),
            _second("Human_Clothes", HUMAN_FIDELITY, LLAVA, custom=True),
            _second("Human_Identity", HUMAN_FIDELITY, ARCFACE, custom=True),
            _second("Material", PHYSICS, LLAVA),
            _second("Mechanics", PHYSICS, LLAVA),
            _second("Multi-View_Consistency", PHYSICS, RAFT, custom=True),
            _second("Thermotics", PHYSICS, LLAVA),
        )
    },
)

BENCHMARKS = {benchmark.package: benchmark for benchmark in (VBENCH, VBENCH2)}
