"""Models that the plugin refuses, with reasons: pipelines with a U-Net, and some of diffusers' classes by name."""

from typing import Any

from galaxydit.errors import GalaxyDiTError

U_NET = "its denoiser is a U-Net, whose blocks differ in size and are joined by skips, so there is no stack to reuse"
_UPSAMPLER = "it runs no denoising steps"
_TWO_CACHES = "its calls fill and read key-value caches of their own, which a reused call would leave unfilled"
_PACKED = (
    "its call takes lists (vision_tokens, sound_tokens, action_tokens) in place of the tensor hidden_states and "
    "returns lists, so there is no tensor to predict; its layers take and return und_seq, the text, which is the same "
    "in every step, before gen_seq, what is generated; caches follow the first tensor, so the order would have to be "
    "(gen_seq, und_seq)"
)  # the order is that of cache-dit's pull request 1088

UNSUPPORTED: dict[str, str] = {
    "LTXLatentUpsamplePipeline": _UPSAMPLER,
    "LTX2LatentUpsamplePipeline": _UPSAMPLER,
    "LTX2VideoDiffusionDecodePipeline": "it decodes latents in a few steps of its own decoder, not of a transformer",
    "EchoModularPipeline": "it walks through its own list of noise levels, so the step of a call is unknown",
    "LTX2DFRPipeline": "it is distilled to 8 steps or fewer a stage, too few to reuse any",
    "LTX2DFRTemporalRefinePipeline": "it is distilled to 8 steps or fewer, too few to reuse any",
    "Kandinsky6SRTransformer3DModel": "it is distilled to 4 steps, too few to reuse any",
    "AnyFlowFARTransformer3DModel": _TWO_CACHES,
    "WanAnimate2Transformer3DModel": _TWO_CACHES,
    "SanaWMLTX2RefinerTransformer3DModel": _TWO_CACHES,
    "Cosmos3OmniTransformer": _PACKED,
}
"""Class names of refused pipelines and transformers, each with the reason; subclasses are refused, too."""


def refuse_unsupported(component: Any) -> None:
    """Raise GalaxyDiTError with the reason for a pipeline or transformer that is known not to work."""
    names = [base.__name__ for base in type(component).__mro__]
    reasons = [UNSUPPORTED[name] for name in names if name in UNSUPPORTED]
    if getattr(component, "unet", None) is not None:
        reasons.append(U_NET)
    if reasons:
        raise GalaxyDiTError(f"{names[0]} is not supported: {reasons[0]}; use it without galaxydit")
