"""Published models by name, and the settings that their authors recommend."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from galaxydit.pipelines.settings import GenerationSettings

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

WAN_NEGATIVE = (
    "Bright tones, overexposed, static, blurred details, subtitles, style, works, paintings, images, static, overall "
    "gray, worst quality, low quality, JPEG compression residue, ugly, incomplete, extra fingers, poorly drawn hands, "
    "poorly drawn faces, deformed, disfigured, misshapen limbs, fused fingers, still picture, messy background, three "
    "legs, many people in the background, walking backwards"
)
"""The negative prompt of Wan's authors, in the English of diffusers' documentation."""
LTX_NEGATIVE = "worst quality, inconsistent motion, blurry, jittery, distorted"
LTX_23_NEGATIVE = (
    "blurry, out of focus, overexposed, underexposed, low contrast, washed out colors, excessive noise, grainy "
    "texture, poor lighting, flickering, motion blur, distorted proportions, unnatural skin tones, deformed facial "
    "features, asymmetrical face, missing facial features, extra limbs, disfigured hands, wrong hand count, artifacts "
    "around text, inconsistent perspective, camera shake, incorrect depth of field, background too sharp, background "
    "clutter, distracting reflections, harsh shadows, inconsistent lighting direction, color banding, cartoonish "
    "rendering, 3D CGI look, unrealistic materials, uncanny valley effect, incorrect ethnicity, wrong gender, "
    "exaggerated expressions, wrong gaze direction, mismatched lip sync, silent or muted audio, distorted voice, "
    "robotic voice, echo, background noise, off-sync audio, incorrect dialogue, added dialogue, repetitive speech, "
    "jittery movement, awkward pauses, incorrect timing, unnatural transitions, inconsistent framing, tilted camera, "
    "flat lighting, inconsistent tone, cinematic oversaturation, stylized filters, or AI artifacts."
)
"""`DEFAULT_NEGATIVE_PROMPT` of diffusers.pipelines.ltx2.utils, which diffusers recommends for LTX-2.3 and 2.5."""
SANA_NEGATIVE = (
    "A chaotic sequence with misshapen, deformed limbs in heavy motion blur, sudden disappearance, jump cuts, jerky "
    "movements, rapid shot changes, frames out of sync, inconsistent character shapes, temporal artifacts, jitter, and "
    "ghosting effects, creating a disorienting visual experience."
)
"""The negative prompt of diffusers' example of SANA-Video."""


@dataclass(frozen=True)
class Checkpoint:
    """A published model and the recipe of its authors, which commands, jobs and the READMEs' examples follow."""

    hub_id: str
    settings: GenerationSettings  # with a `flow_shift`, `load_pipeline` makes the scheduler a UniPCMultistepScheduler
    dtypes: Mapping[str, str] = field(default_factory=dict)  # by component; "default" for the others, else bfloat16
    revision: str | None = None
    transformer: str = "transformer"  # its folder
    scheduler: Mapping[str, Any] = field(default_factory=dict)  # entries of its configuration to change


WAN_TINY = GenerationSettings(64, 64, 9, steps=50, guidance_scale=5.0, fps=8.0)
_480P = GenerationSettings(480, 832, 81, steps=50, guidance_scale=5.0, flow_shift=5.0, negative_prompt=WAN_NEGATIVE)
WAN_21_14B = replace(_480P, height=720, width=1280)
_WAN_21_SHIFT_16 = replace(WAN_21_14B, flow_shift=16.0)
_WAN_21_I2V_480P = replace(_480P, steps=40, flow_shift=3.0)
WAN_21_1_3B = replace(_480P, guidance_scale=6.0, flow_shift=8.0)
WAN_22_A14B = replace(WAN_21_14B, steps=40, guidance_scale=4.0, guidance_scale_2=3.0, flow_shift=12.0)
_WAN_22_I2V = replace(WAN_22_A14B, guidance_scale=3.5, guidance_scale_2=3.5, flow_shift=5.0)
WAN_22_TI2V_5B = replace(WAN_21_14B, height=704, num_frames=121, fps=24.0)
_SKYREELS = GenerationSettings(544, 960, 97, steps=50, guidance_scale=6.0, flow_shift=8.0, fps=24.0)
_LTX = GenerationSettings(512, 768, 121, steps=30, guidance_scale=3.0, negative_prompt=LTX_NEGATIVE, fps=24.0)
_HUNYUANVIDEO = GenerationSettings(720, 1280, 129, steps=50, guidance_scale=6.0, fps=24.0)
_KANDINSKY = GenerationSettings(512, 768, 121, steps=50, guidance_scale=5.0, fps=24.0)
_COGVIDEOX = GenerationSettings(480, 720, 49, steps=50, guidance_scale=6.0, fps=8.0)
_MOCHI = GenerationSettings(480, 848, 85, steps=64, guidance_scale=4.5, fps=30.0)
_COSMOS = GenerationSettings(704, 1280, 93, steps=36, guidance_scale=7.0)
_LTX_23 = replace(_LTX, negative_prompt=LTX_23_NEGATIVE)
# Guidance belongs to the checkpoint: a guider with a scale of 6.
_HUNYUANVIDEO_15 = GenerationSettings(480, 848, 121, steps=50, fps=24.0)
_WAN_ANIMATE = GenerationSettings(720, 1280, 77, steps=20, guidance_scale=1.0, fps=30.0)  # frames of one segment
_SANA_VIDEO = GenerationSettings(480, 832, 81, steps=50, guidance_scale=6.0, negative_prompt=SANA_NEGATIVE)
_KANDINSKY_6 = GenerationSettings(480, 864, 121, steps=50, guidance_scale=5.0, fps=24.0)
_KANDINSKY_6_DISTILLED = replace(_KANDINSKY_6, steps=16, guidance_scale=1.0)
MINIMAX_H3 = GenerationSettings(768, 1344, 124, steps=50, fps=24.0)
"""Of 50 noise levels, of which the last one, 0, takes no call. Guidance is distilled: it takes no scale."""
_CLIP = {"image_encoder": "float32"}
_FLOAT32_VAE = {"vae": "float32"}
_MIXED = {"default": "float16", "transformer": "bfloat16"}
CHECKPOINTS = {
    "wan2.1-t2v-1.3b": Checkpoint("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", WAN_21_1_3B),
    "wan2.1-t2v-14b": Checkpoint("Wan-AI/Wan2.1-T2V-14B-Diffusers", WAN_21_14B),
    "wan2.1-i2v-14b-480p": Checkpoint("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers", _WAN_21_I2V_480P, _CLIP),
    "wan2.1-i2v-14b-720p": Checkpoint("Wan-AI/Wan2.1-I2V-14B-720P-Diffusers", replace(WAN_21_14B, steps=40), _CLIP),
    "wan2.1-flf2v-14b-720p": Checkpoint("Wan-AI/Wan2.1-FLF2V-14B-720P-diffusers", _WAN_21_SHIFT_16, _CLIP),
    "wan2.1-vace-1.3b": Checkpoint("Wan-AI/Wan2.1-VACE-1.3B-diffusers", replace(_480P, flow_shift=16.0)),
    "wan2.1-vace-14b": Checkpoint("Wan-AI/Wan2.1-VACE-14B-diffusers", _WAN_21_SHIFT_16),
    "wan2.2-t2v-a14b": Checkpoint("Wan-AI/Wan2.2-T2V-A14B-Diffusers", WAN_22_A14B),
    "wan2.2-i2v-a14b": Checkpoint("Wan-AI/Wan2.2-I2V-A14B-Diffusers", _WAN_22_I2V),
    "wan2.2-ti2v-5b": Checkpoint("Wan-AI/Wan2.2-TI2V-5B-Diffusers", WAN_22_TI2V_5B),
    "skyreels-v2-t2v-14b-540p": Checkpoint("Skywork/SkyReels-V2-T2V-14B-540P-Diffusers", _SKYREELS),
    "ltx-video": Checkpoint("Lightricks/LTX-Video", replace(_LTX, height=480, width=704, num_frames=161, steps=50)),
    "cogvideox-2b": Checkpoint("THUDM/CogVideoX-2b", _COGVIDEOX, {"default": "float16"}),
    "cogvideox-5b": Checkpoint("THUDM/CogVideoX-5b", _COGVIDEOX),
    "hunyuanvideo": Checkpoint("hunyuanvideo-community/HunyuanVideo", _HUNYUANVIDEO, _MIXED),
    "hunyuanvideo-i2v": Checkpoint("hunyuanvideo-community/HunyuanVideo-I2V", replace(_HUNYUANVIDEO, fps=15.0), _MIXED),
    "ltx-2": Checkpoint("Lightricks/LTX-2", _LTX),
    "cogvideox-5b-i2v": Checkpoint("THUDM/CogVideoX-5b-I2V", _COGVIDEOX),
    "kandinsky-5-t2v-lite": Checkpoint("kandinskylab/Kandinsky-5.0-T2V-Lite-sft-5s-Diffusers", _KANDINSKY),
    "kandinsky-5-i2v-pro": Checkpoint("kandinskylab/Kandinsky-5.0-I2V-Pro-sft-5s-Diffusers", _KANDINSKY),
    "mochi-1": Checkpoint("genmo/mochi-1-preview", _MOCHI),
    # The branch is that of diffusers' own example.
    "cosmos-predict2.5-2b": Checkpoint("nvidia/Cosmos-Predict2.5-2B", _COSMOS, revision="diffusers/base/post-trained"),
    "cosmos-predict2-2b-video2world": Checkpoint("nvidia/Cosmos-Predict2-2B-Video2World", replace(_COSMOS, steps=35)),
    "minimax-h3": Checkpoint("MiniMaxAI/MiniMax-H3", MINIMAX_H3),
    "ltx-2.3": Checkpoint("diffusers/LTX-2.3-Diffusers", _LTX_23),
    # The repository's transformer and scheduler are those of the distilled model.
    "ltx-2.5": Checkpoint(
        "Lightricks/LTX-2.5-Diffusers",
        _LTX_23,
        transformer="transformer_full",
        scheduler={"use_dynamic_shifting": True, "shift_terminal": 0.1},
    ),
    "hunyuanvideo-1.5-t2v-480p": Checkpoint(
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v", _HUNYUANVIDEO_15
    ),
    "hunyuanvideo-1.5-t2v-720p": Checkpoint(
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-720p_t2v", replace(_HUNYUANVIDEO_15, height=720, width=1280)
    ),
    "wan2.2-animate-14b": Checkpoint("Wan-AI/Wan2.2-Animate-14B-Diffusers", _WAN_ANIMATE, _CLIP),
    "sana-video-2b-480p": Checkpoint("Efficient-Large-Model/SANA-Video_2B_480p_diffusers", _SANA_VIDEO, _FLOAT32_VAE),
    "sana-video-2b-720p": Checkpoint(
        "Efficient-Large-Model/SANA-Video_2B_720p_diffusers",
        replace(_SANA_VIDEO, height=704, width=1280),
        _FLOAT32_VAE,
    ),
    "kandinsky-6-pro": Checkpoint("kandinskylab/Kandinsky-6.0-Pro-5s-Diffusers", _KANDINSKY_6),
    "kandinsky-6-pro-distill": Checkpoint(
        "kandinskylab/Kandinsky-6.0-Pro-distill-5s-Diffusers", _KANDINSKY_6_DISTILLED
    ),
}
"""Published models by the name that `load_pipeline` takes.

Sources: Wan2.1, github.com/Wan-Video/Wan2.1, README (1.3B) and generate.py; Wan2.2, github.com/Wan-Video/Wan2.2,
wan/configs; Kandinsky 6, github.com/kandinskylab/kandinsky-6, comfyui/kandinsky6/core_contract.py; HunyuanVideo 1.5,
github.com/Tencent-Hunyuan/HunyuanVideo-1.5, README; the size of SANA-Video 720p, its table of aspect ratios in
diffusers; the size of MiniMax-H3, diffusers' `resolve_canvas_size` of 16:9; the others, their pages, examples and
defaults in diffusers 0.42.
"""


def checkpoint_of(model: str | None) -> Checkpoint | None:
    """The published model of this name or hub id; None for any other model."""
    return next((each for name, each in CHECKPOINTS.items() if model in (name, each.hub_id)), None)


def recommended_settings(pipe: "DiffusionPipeline") -> GenerationSettings:
    """Settings that the model's authors recommend, else the defaults of its `__call__`.

    Without a size and a number of frames where an image or video determines them. Local copies of Wan are recognised by
    their configuration.
    """
    return fitted_to(pipe, own_settings(pipe))


def fitted_to(pipe: "DiffusionPipeline", settings: GenerationSettings) -> GenerationSettings:
    """The settings without those that the pipeline's inputs determine, or that its scheduler does not take."""
    from galaxydit.pipelines.sizes import follows_video, has_one_size, takes_images

    if follows_video(pipe):
        settings = replace(settings, num_frames=None)
    if takes_images(pipe) and not has_one_size(pipe):
        settings = replace(settings, height=None, width=None)
    takes_shift = pipe.scheduler is None or "flow_shift" in pipe.scheduler.config
    return settings if takes_shift else replace(settings, flow_shift=None)


def authors_settings(pipe: "DiffusionPipeline") -> GenerationSettings | None:
    """The authors' settings, whatever the pipeline's scheduler and inputs are; None for a model that is not known."""
    if checkpoint := checkpoint_of(pipe.config.get("_name_or_path")):
        return checkpoint.settings
    if type(pipe).__name__ == "WanPipeline":
        if pipe.config.expand_timesteps:
            return WAN_22_TI2V_5B
        if pipe.config.boundary_ratio is not None:
            return WAN_22_A14B
        by_layers = {10: WAN_TINY, 30: WAN_21_1_3B, 40: WAN_21_14B}
        if pipe.transformer.config.num_layers in by_layers:
            return by_layers[pipe.transformer.config.num_layers]
    if type(pipe).__name__ == "MiniMaxH3ModularPipeline":
        return MINIMAX_H3
    return None


def own_settings(pipe: "DiffusionPipeline") -> GenerationSettings:
    """The authors' settings, else the defaults of the pipeline's `__call__`."""
    from galaxydit.pipelines.modular import parameters_of

    if (settings := authors_settings(pipe)) is not None:
        return settings
    parameters = parameters_of(pipe)
    names = ("height", "width", "num_frames", "num_inference_steps", "guidance_scale")
    defaults = [parameters[name].default if name in parameters else None for name in names]
    values: list[Any] = [None if default is Parameter.empty else default for default in defaults]
    return GenerationSettings(*values)
