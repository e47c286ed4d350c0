"""What is refused by name: diffusers video pipelines and transformers that the method cannot speed up, and why."""

from typing import Any

_UNET = "its denoiser is a U-Net, whose blocks differ in size and are joined by skips, so there is no stack to reuse"
_UPSAMPLER = "it runs no denoising steps"
_TWO_CACHES = "its calls fill and read key-value caches of their own, which a reused call would leave unfilled"
_PACKED = "it packs text, vision, sound and actions into lists of tokens, so there is no latent tensor to predict"

UNSUPPORTED: dict[str, str] = {
    "AnimateDiffPipeline": _UNET,
    "AnimateDiffControlNetPipeline": _UNET,
    "AnimateDiffPAGPipeline": _UNET,
    "AnimateDiffSDXLPipeline": _UNET,
    "AnimateDiffSparseControlNetPipeline": _UNET,
    "AnimateDiffVideoToVideoPipeline": _UNET,
    "AnimateDiffVideoToVideoControlNetPipeline": _UNET,
    "I2VGenXLPipeline": _UNET,
    "PIAPipeline": _UNET,
    "StableVideoDiffusionPipeline": _UNET,
    "TextToVideoSDPipeline": _UNET,
    "TextToVideoZeroPipeline": _UNET,
    "TextToVideoZeroSDXLPipeline": _UNET,
    "VideoToVideoSDPipeline": _UNET,
    "LTXLatentUpsamplePipeline": _UPSAMPLER,
    "LTX2LatentUpsamplePipeline": _UPSAMPLER,
    "LTX2VideoDiffusionDecodePipeline": "it decodes latents in a few steps of its own decoder, not of a transformer",
    "EchoModularPipeline": "it walks through its own list of noise levels, so the step of a call is unknown",
    "LTX2DFRPipeline": "it is distilled to 8 steps or fewer a stage, too few to reuse any",
    "LTX2DFRTemporalRefinePipeline": "it is distilled to 8 steps or fewer, too few to reuse any",
    "Kandinsky6SRTransformer3DModel": "it is distilled to 4 steps, too few to reuse any",
    "AnyFlowFARTransformer3DModel": _TWO_CACHES,
    "WanAnimate2Transformer3DModel": _TWO_CACHES,
    "Cosmos3OmniTransformer": _PACKED,
}
"""Class names of pipelines and transformers, and the reason; subclasses are refused, too."""


def reason_against(component: Any) -> str | None:
    """One sentence that says why a pipeline or transformer is refused; None where nothing speaks against it."""
    for base in type(component).__mro__:
        if base.__name__ in UNSUPPORTED:
            return (
                f"{type(component).__name__} is not supported: {UNSUPPORTED[base.__name__]}; use it without galaxydit"
            )
    return None
