"""Write random weights of the real architectures to where VBench looks for the real files.

Run in VBench's environment: `python random_weights.py CACHE INSIDE DIMENSION...`; INSIDE is eval/vbench/inside. The
hub's cache is the folder of HF_HUB_CACHE. Scores from these weights mean nothing; they prove that upstream's code runs.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

CLIP_B32 = (512, 224, 12, 768, 32, 77, 49408, 512, 8, 12)  # arguments of clip.model.CLIP, read off the published files
CLIP_L14 = (768, 224, 24, 1024, 14, 77, 49408, 768, 12, 12)
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
DINO_CODE = '''
dependencies = ["torch", "timm"]

def dino_vitb16(pretrained=True, **_):
    """ViT-B/16 without a head, DINO's architecture, from timm; the real folder is facebookresearch/dino."""
    import timm, torch
    model = timm.create_model("vit_base_patch16_224", num_classes=0, dynamic_img_size=True)
    place = torch.hub.get_dir() + "/checkpoints/dino_vitbase16_pretrain.pth"
    model.load_state_dict(torch.load(place, map_location="cpu"))
    return model
'''


def save(content: object, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, place)


def write_clip(place: Path, sizes: tuple[int, ...]) -> None:
    """A TorchScript archive, as the published files are."""
    from clip.model import CLIP

    place.parent.mkdir(parents=True, exist_ok=True)
    model = CLIP(*sizes).eval()
    example = (torch.zeros(1, 3, 224, 224), torch.zeros(1, 77, dtype=torch.int64))
    torch.jit.trace(model, example, check_trace=False).save(str(place))


def write_clip_b32(cache: Path) -> None:
    write_clip(cache / "clip_model" / "ViT-B-32.pt", CLIP_B32)


def write_aesthetic(cache: Path) -> None:
    write_clip(cache / "clip_model" / "ViT-L-14.pt", CLIP_L14)
    head = torch.nn.Linear(768, 1).state_dict()
    save(head, cache / "aesthetic_model" / "emb_reader" / "sa_0_4_vit_l_14_linear.pth")


def write_dino(cache: Path) -> None:
    """With DINO_CHECKOUT, a checkout of facebookresearch/dino, its own code; else the architecture from timm."""
    code = cache / "dino_model" / "facebookresearch_dino_main"
    if checkout := os.environ.get("DINO_CHECKOUT"):
        code.parent.mkdir(parents=True, exist_ok=True)
        code.symlink_to(Path(checkout).resolve())
        sys.path.insert(0, checkout)
        import vision_transformer

        model = vision_transformer.vit_base(patch_size=16, num_classes=0)
    else:
        import timm

        code.mkdir(parents=True, exist_ok=True)
        (code / "hubconf.py").write_text(DINO_CODE)
        model = timm.create_model("vit_base_patch16_224", num_classes=0, dynamic_img_size=True)
    save(model.state_dict(), cache / "dino_model" / "dino_vitbase16_pretrain.pth")


def write_musiq(cache: Path) -> None:
    from pyiqa.archs.musiq_arch import MUSIQ

    place = cache / "pyiqa_model" / "musiq_spaq_ckpt-358bb6af.pth"
    save(MUSIQ(pretrained=False).state_dict(), place)


def write_amt(cache: Path) -> None:
    import vbench
    from omegaconf import OmegaConf
    from vbench.third_party.amt.utils.build_utils import build_from_cfg

    settings = OmegaConf.load(Path(vbench.__file__).parent / "third_party" / "amt" / "cfgs" / "AMT-S.yaml")
    save({"state_dict": build_from_cfg(settings.network).state_dict()}, cache / "amt_model" / "amt-s.pth")


def write_raft(cache: Path) -> None:
    from easydict import EasyDict
    from vbench.third_party.RAFT.core.raft import RAFT

    model = RAFT(EasyDict(small=False, mixed_precision=False, alternate_corr=False))
    weights = {f"module.{name}": value for name, value in model.state_dict().items()}
    save(weights, cache / "raft_model" / "models" / "raft-things.pth")


def write_umt(cache: Path) -> None:
    from timm.models import create_model
    from vbench.third_party.umt.models import modeling_finetune  # noqa: F401

    model = create_model(
        "vit_large_patch16_224", num_classes=400, all_frames=16, tubelet_size=1, use_mean_pooling=True, init_scale=0.001
    )
    save(model.state_dict(), cache / "umt_model" / "l16_ptk710_ftk710_ftk400_f16_res224.pth")


def write_viclip(cache: Path) -> None:
    """The tokenizer's file is that of the package clip, which upstream downloads from the same repository."""
    import shutil

    import clip

    place = cache / "ViCLIP" / "bpe_simple_vocab_16e6.txt.gz"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(clip.__file__).parent / place.name, place)
    from vbench.third_party.ViCLIP.simple_tokenizer import SimpleTokenizer
    from vbench.third_party.ViCLIP.viclip import ViCLIP

    model = ViCLIP(tokenizer=SimpleTokenizer(str(place)), pretrain=None)
    for value in model.parameters():
        if value.ndim > 1:  # some are allocated and never set
            torch.nn.init.normal_(value, std=0.02)
    save({"model": model.state_dict()}, cache / "ViCLIP" / "ViClip-InternVid-10M-FLT.pth")


def write_bert() -> None:
    """bert-base-uncased with a made-up vocabulary, in the hub's cache."""
    from transformers import BertConfig, BertModel

    root = Path(os.environ["HF_HUB_CACHE"]) / "models--bert-base-uncased"
    folder = root / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text("0" * 40)
    BertModel(BertConfig()).save_pretrained(folder)
    words = [*WORDS, "a", "picture", "of"]
    (folder / "vocab.txt").write_text("\n".join([*words, *(f"word{index}" for index in range(30522 - len(words)))]))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


def write_tag2text(cache: Path) -> None:
    write_bert()
    from vbench.third_party.tag2Text.tag2text import tag2text_caption

    model = tag2text_caption(pretrained="", image_size=384, vit="swin_b")
    save({"model": model.state_dict()}, cache / "caption_model" / "tag2text_swin_14m.pth")


def write_grit(cache: Path) -> None:
    from detectron2.modeling import build_model
    from vbench.third_party.grit_src.image_dense_captions import get_parser, setup_cfg

    write_bert()
    arguments = get_parser(torch.device("cpu"), "")
    model = build_model(setup_cfg(arguments))
    save({"model": model.state_dict()}, cache / "grit_model" / "grit_b_densecap_objectdet.pth")


WRITERS: dict[str, Callable[[Path], None]] = {
    "subject_consistency": write_dino,
    "background_consistency": write_clip_b32,
    "temporal_flickering": write_raft,  # of the static filter
    "motion_smoothness": write_amt,
    "aesthetic_quality": write_aesthetic,
    "imaging_quality": write_musiq,
    "dynamic_degree": write_raft,
    "object_class": write_grit,
    "multiple_objects": write_grit,
    "human_action": write_umt,
    "color": write_grit,
    "spatial_relationship": write_grit,
    "scene": write_tag2text,
    "appearance_style": write_clip_b32,
    "temporal_style": write_viclip,
    "overall_consistency": write_viclip,
}


def main() -> None:
    cache, inside, *dimensions = sys.argv[1:]
    os.environ["VBENCH_CACHE_DIR"] = cache
    sys.path.insert(0, inside)
    import shims

    torch.manual_seed(0)
    for dimension in dimensions:
        shims.install("vbench", dimension)
    for write in dict.fromkeys(WRITERS[dimension] for dimension in dimensions):
        write(Path(cache))


if __name__ == "__main__":
    main()
