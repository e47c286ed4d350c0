"""VBench-2.0 (Zheng et al. 2025, arXiv 2503.21755) as data: dimensions, groups, videos per prompt, and needs.

Names and counts are those of the package vbench2 0.1.1; totals, unweighted means of groups of raw scores, those of
github.com/Vchitect/VBench (`VBench-2.0/scripts/constant.py`, `cal_final_score.py`).
"""

from dataclasses import replace
from functools import partial

from galaxydit.eval.published.suite import CHECKPOINTS, Dimension, Suite, Weights

LLAVA = "LLaVA-Video-7B-Qwen2 (hub lmms-lab) and LLaVA-NeXT with flash-attention, built for CUDA 11.8: an LLM judge"
JUDGES = f"{LLAVA}; Qwen2.5-7B-Instruct as a second judge"
YOLO = "YOLO-World (Google Drive) and mmcv 2.2, mmdet, mmyolo, built for CUDA 11.8"
COTRACKER = "CoTracker 2 (torch.hub, facebookresearch/co-tracker)"
VGG19 = Weights(
    CHECKPOINTS, "https://download.pytorch.org/models/vgg19-dcbb9e9d.pth", "BSD-3-Clause", sha256="dcbb9e9d"
)
NO_LLAVA = "No module named 'llava'"
NO_MMENGINE = "No module named 'mmengine'"
NO_COTRACKER = "the wheel lacks third_party.cotracker.utils"
# By group and dimension: what the dimension needs beside packages of PyPI, and `Dimension.proof`, such as the error of
# its import.
GROUPS = {
    "Creativity": {"Composition": (LLAVA, NO_LLAVA), "Diversity": ("", "runs with random weights")},
    "Commonsense": {"Instance_Preservation": (YOLO, NO_MMENGINE), "Motion_Rationality": (LLAVA, NO_LLAVA)},
    "Controllability": {
        "Camera_Motion": (COTRACKER, NO_COTRACKER),
        "Complex_Landscape": (JUDGES, NO_LLAVA),
        "Complex_Plot": (JUDGES, NO_LLAVA),
        "Dynamic_Attribute": (LLAVA, NO_LLAVA),
        "Dynamic_Spatial_Relationship": (LLAVA, NO_LLAVA),
        "Human_Interaction": (JUDGES, NO_LLAVA),
        "Motion_Order_Understanding": (JUDGES, NO_LLAVA),
    },
    "Human Fidelity": {
        "Human_Anatomy": (f"{YOLO}; three anomaly detectors (Google Drive)", NO_MMENGINE),
        "Human_Clothes": (LLAVA, "the wheel lacks third_party.LLaVA_NeXT.llava.model.builder"),
        "Human_Identity": (f"ArcFace (Google Drive), RetinaFace, {COTRACKER}", NO_COTRACKER),
    },
    "Physics": {
        "Material": (LLAVA, NO_LLAVA),
        "Mechanics": (LLAVA, NO_LLAVA),
        "Multi-View_Consistency": (f"RAFT, {COTRACKER}", NO_COTRACKER),
        "Thermotics": (LLAVA, NO_LLAVA),
    },
}
CUSTOM = {"Human_Anatomy", "Human_Identity", "Human_Clothes", "Diversity", "Multi-View_Consistency"}
SAMPLES = 3
SAMPLES_OF_DIVERSITY = 20
# Judges leave out videos whose answer they cannot read; some dimensions compare a prompt's videos or average questions.
_judged = partial(Dimension, samples=SAMPLES, partial=True, divisible=False)
DIMENSIONS = {
    name: _judged(name, group, custom=name in CUSTOM, needs=needs, proof=proof)
    for group, dimensions in GROUPS.items()
    for name, (needs, proof) in dimensions.items()
}
DIMENSIONS["Diversity"] = replace(DIMENSIONS["Diversity"], samples=SAMPLES_OF_DIVERSITY, weights=(VGG19,))
INFO = "VBench2_full_info.json"
VARIABLE = "VBENCH2_CACHE_DIR"
EQUAL = dict.fromkeys(GROUPS, 1.0)
VBENCH2 = Suite("vbench2", "VBench-2.0", "vbench2", "0.1.1", INFO, VARIABLE, DIMENSIONS, EQUAL, prompt_in_name=180)
