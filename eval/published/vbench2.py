"""VBench-2.0 as data: dimensions, groups, videos per prompt, and what each dimension needs.

Source: VBench-2.0 (Zheng et al. 2025, arXiv 2503.21755). Names and counts are those of the package vbench2 0.1.1.
Groups and totals are those of github.com/Vchitect/VBench (`VBench-2.0/scripts/constant.py`, `cal_final_score.py`):
scores are not normalised, the total is the mean of the groups, and a group the mean of its dimensions.
"""

from galaxydit.eval.published.suite import Dimension, Suite

LLAVA = "LLaVA-Video-7B-Qwen2 (hub lmms-lab) and LLaVA-NeXT with flash-attention, built for CUDA 11.8: an LLM judge"
JUDGES = f"{LLAVA}; Qwen2.5-7B-Instruct as a second judge"
YOLO = "YOLO-World (Google Drive) and mmcv 2.2, mmdet, mmyolo, built for CUDA 11.8"
COTRACKER = "CoTracker 2 (torch.hub, facebookresearch/co-tracker)"
GROUPS = {
    "Creativity": {
        "Composition": LLAVA,
        "Diversity": "VGG-19 of torchvision",
    },
    "Commonsense": {
        "Instance_Preservation": YOLO,
        "Motion_Rationality": LLAVA,
    },
    "Controllability": {
        "Camera_Motion": COTRACKER,
        "Complex_Landscape": JUDGES,
        "Complex_Plot": JUDGES,
        "Dynamic_Attribute": LLAVA,
        "Dynamic_Spatial_Relationship": LLAVA,
        "Human_Interaction": JUDGES,
        "Motion_Order_Understanding": JUDGES,
    },
    "Human Fidelity": {
        "Human_Anatomy": f"{YOLO}; three anomaly detectors (Google Drive)",
        "Human_Clothes": LLAVA,
        "Human_Identity": f"ArcFace (Google Drive), RetinaFace, {COTRACKER}",
    },
    "Physics": {
        "Material": LLAVA,
        "Mechanics": LLAVA,
        "Multi-View_Consistency": f"RAFT, {COTRACKER}",
        "Thermotics": LLAVA,
    },
}
CUSTOM = {"Human_Anatomy", "Human_Identity", "Human_Clothes", "Diversity", "Multi-View_Consistency"}
SAMPLES, SAMPLES_OF_DIVERSITY = 3, 20

VBENCH2 = Suite(
    "vbench2",
    "VBench-2.0",
    "vbench2",
    "0.1.1",
    "VBench2_full_info.json",
    "VBENCH2_CACHE_DIR",
    {
        name: Dimension(
            name,
            group,
            custom=name in CUSTOM,
            samples=SAMPLES_OF_DIVERSITY if name == "Diversity" else SAMPLES,
            partial=True,  # its judges leave out videos whose answer they cannot read
            divisible=False,  # some dimensions compare the videos of a prompt, others average over questions
            needs=needs,
            proof="never run",
        )
        for group, dimensions in GROUPS.items()
        for name, needs in dimensions.items()
    },
    dict.fromkeys(GROUPS, 1.0),
    prompt_in_name=180,
)
