"""Tiny pipelines of every kind, by name; Wan's and LTX-2's have tests of their own."""

from dataclasses import replace

import torch
from diffusers import (
    ClassifierFreeGuidance,
    CogVideoXDDIMScheduler,
    DDIMScheduler,
    EDMEulerScheduler,
    EulerAncestralDiscreteScheduler,
    FlowMapEulerDiscreteScheduler,
)
from tiny_parts import (
    IMAGE,
    SIZE,
    VIDEO,
    ImageEncoder,
    Part,
    Tiny,
    embedding,
    flow,
    masks,
    process,
    texts,
    unipc,
)

NAMED, UNNAMED, PREDICTIONS = ["cond", "uncond"], ["call 0", "call 1"], ["pred_cond", "pred_uncond"]
ONE_BATCH, NAMED_BATCH = ["call 0"], ["cond_uncond"]
_HEADS = {"num_attention_heads": 2, "attention_head_dim": 12}
_CHANNELS = {"in_channels": 4, "out_channels": 4}
WAN = _HEADS | _CHANNELS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": 4}
COSMOS = _HEADS | {
    "out_channels": 4,
    "num_layers": 4,
    "text_embed_dim": 16,
    "adaln_lora_dim": 4,
    "max_size": (4, 8, 8),
}
COSMOS |= {"concat_padding_mask": False}
_HUNYUAN = _HEADS | _CHANNELS | {"rope_axes_dim": (4, 4, 4), "text_embed_dim": 16, "num_layers": 2}
_HUNYUAN |= {"num_single_layers": 2, "num_refiner_layers": 1, "pooled_projection_dim": 8}
_ANIMATE = {"motion_encoder_channel_sizes": {"4": 16, "8": 16, "16": 16}, "motion_encoder_size": 16, "image_dim": 16}
_ANIMATE |= {"motion_style_dim": 8, "motion_dim": 4, "motion_encoder_dim": 16, "face_encoder_hidden_dim": 16}
_ANIMATE |= {"face_encoder_num_heads": 2, "inject_face_latents_blocks": 2, "in_channels": 12, "latent_channels": 4}
LTX = _HEADS | _CHANNELS | {"cross_attention_dim": 24, "num_layers": 4, "caption_channels": 16}
_EASY = _HEADS | _CHANNELS | {"attention_head_dim": 16, "num_layers": 4, "mmdit_layers": 2, "patch_size": 2}
_EASY |= {"text_embed_dim": 16, "time_embed_dim": 8}
_SANA = _HEADS | _CHANNELS | {"num_layers": 4, "num_cross_attention_heads": 2, "cross_attention_head_dim": 12}
_SANA |= {"cross_attention_dim": 24, "caption_channels": 16, "sample_size": 4}
_MOTIF = _HEADS | {"rope_axes_dim": (4, 4, 4), "text_embed_dim": 16, "num_layers": 2, "num_single_layers": 2}
_MOTIF |= {"patch_size": 1, "image_embed_dim": 8, "in_channels": 9, "out_channels": 4}
_KANDINSKY = {"in_visual_dim": 4, "out_visual_dim": 4, "in_text_dim": 16, "in_text_dim2": 8, "time_dim": 16}
_KANDINSKY |= {"model_dim": 16, "ff_dim": 32, "num_text_blocks": 1, "num_visual_blocks": 4, "axes_dims": (2, 2, 4)}
SAFE = {"safety_checker": Part(check_text_safety=lambda text: True, check_video_safety=lambda video: video)}
HUNYUAN_15 = _HEADS | _CHANNELS | {"in_channels": 9, "num_layers": 4, "num_refiner_layers": 1, "patch_size": 1}
HUNYUAN_15 |= {"text_embed_dim": 16, "text_embed_2_dim": 8, "image_embed_dim": 8, "rope_axes_dim": (4, 4, 4)}
HUNYUAN_15 |= {"target_size": 16}
_POOLED = {"pooled_prompt_embeds": embedding(8), "negative_pooled_prompt_embeds": embedding(8, seed=1)}
_COGVIDEO = _HEADS | {"attention_head_dim": 16, "in_channels": 8, "out_channels": 4, "time_embed_dim": 8}
_COGVIDEO |= {"text_embed_dim": 16, "num_layers": 4, "sample_width": 4, "sample_height": 4, "sample_frames": 5}
_TWO_TEXTS = {
    f"{sign}prompt_{name}": value
    for seed, sign in enumerate(("", "negative_"))
    for name, value in (
        ("embeds_qwen", embedding(8, 16, seed=seed)),
        ("embeds_clip", embedding(8, seed=seed)),
        ("cu_seqlens", torch.tensor([0, 8], dtype=torch.int32)),
    )
}
GLYPHS = {
    f"{sign}prompt_{name}": value
    for seed, sign in enumerate(("", "negative_"))
    for name, value in (
        ("embeds_2", embedding(4, 8, seed=2 + seed)),
        ("embeds_mask", torch.ones(1, 8)),
        ("embeds_mask_2", torch.ones(1, 4)),
    )
}
_GUIDER = {"guider": ClassifierFreeGuidance(3.0)}
_LONG_TEXTS = {"prompt_embeds": embedding(512, 16), "negative_prompt_embeds": embedding(512, 16, seed=1)}
_CLIP = {"image_encoder": ImageEncoder(4, 16), "image_processor": process}
FORCING = Tiny(
    "SkyReelsV2DiffusionForcingPipeline",
    "SkyReelsV2Transformer3DModel",
    WAN,
    NAMED,
    texts(prompt=None) | SIZE | {"num_frames": 13},
    unipc(flow_shift=8.0),
)

PIPELINES = {
    "Wan VACE": Tiny(
        "WanVACEPipeline",
        "WanVACETransformer3DModel",
        WAN | {"vace_layers": [0, 2], "vace_in_channels": 72},
        NAMED,
        texts(video=VIDEO) | SIZE,
    ),
    "Wan Animate": Tiny(
        "WanAnimatePipeline",
        "WanAnimateTransformer3DModel",
        WAN | _ANIMATE,
        NAMED,
        texts(image=IMAGE, pose_video=VIDEO, face_video=VIDEO, segment_frame_length=5, guidance_scale=3.0)
        | {"height": 32, "width": 32},
        parts=_CLIP,
    ),
    "ChronoEdit": Tiny(
        "ChronoEditPipeline",
        "ChronoEditTransformer3DModel",
        WAN | {"in_channels": 12, "image_dim": 16, "added_kv_proj_dim": 24},
        UNNAMED,
        _LONG_TEXTS | {"image": IMAGE} | SIZE,
        parts=_CLIP,
    ),
    "Cosmos text": Tiny(
        "CosmosTextToWorldPipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 4},
        UNNAMED,
        texts() | SIZE,
        EDMEulerScheduler,
        SAFE,
    ),
    "Cosmos video": Tiny(
        "CosmosVideoToWorldPipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 5},
        UNNAMED,
        texts(image=IMAGE) | SIZE,
        EDMEulerScheduler,
        SAFE,
    ),
    "Cosmos-Predict2 image": Tiny(
        "Cosmos2TextToImagePipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 4},
        UNNAMED,
        texts(height=32, width=32),
        flow(use_karras_sigmas=True),
        SAFE,
    ),
    "Cosmos-Predict2 video": Tiny(
        "Cosmos2VideoToWorldPipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 5},
        UNNAMED,
        texts(image=IMAGE) | SIZE,
        flow(use_karras_sigmas=True),
        SAFE,
    ),
    "Cosmos-Predict2.5": Tiny(
        "Cosmos2_5_PredictBasePipeline",
        "CosmosTransformer3DModel",
        COSMOS | {"in_channels": 5},
        UNNAMED,
        texts() | SIZE,
        unipc(),
        SAFE,
    ),
    "HunyuanVideo image": Tiny(
        "HunyuanVideoImageToVideoPipeline",
        "HunyuanVideoTransformer3DModel",
        _HUNYUAN | {"in_channels": 9, "patch_size": 1, "image_condition_type": "latent_concat"},
        UNNAMED,
        texts(image=IMAGE, true_cfg_scale=4.0) | _POOLED | masks() | SIZE,
    ),
    "Framepack": Tiny(
        "HunyuanVideoFramepackPipeline",
        "HunyuanVideoFramepackTransformer3DModel",
        _HUNYUAN | {"patch_size": 2, "has_image_proj": True, "image_proj_dim": 8, "has_clean_x_embedder": True},
        UNNAMED,
        texts(image=IMAGE, true_cfg_scale=4.0, latent_window_size=2) | _POOLED | masks() | SIZE,
        parts={"image_encoder": ImageEncoder(3, 8), "feature_extractor": process},
    ),
    "CogVideoX image": Tiny(
        "CogVideoXImageToVideoPipeline",
        "CogVideoXTransformer3DModel",
        _COGVIDEO | {"max_text_seq_length": 8, "use_rotary_positional_embeddings": True},
        NAMED_BATCH,
        texts(image=IMAGE) | SIZE,
        CogVideoXDDIMScheduler,
    ),
    "LTX condition": Tiny(
        "LTXConditionPipeline",
        "LTXVideoTransformer3DModel",
        LTX,
        NAMED_BATCH,
        texts(image=IMAGE) | masks() | SIZE,
    ),
    "Latte": Tiny(
        "LattePipeline",
        "LatteTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "caption_channels": 16}
        | {"cross_attention_dim": 16, "sample_size": 4, "patch_size": 2, "activation_fn": "gelu-approximate"}
        | {"num_embeds_ada_norm": 1000, "norm_type": "ada_norm_single", "norm_elementwise_affine": False}
        | {"video_length": 2, "out_channels": 8},
        ONE_BATCH,
        texts(height=32, width=32, video_length=2, negative_prompt=None),
        DDIMScheduler,
    ),
    "Allegro": Tiny(
        "AllegroPipeline",
        "AllegroTransformer3DModel",
        _CHANNELS
        | {"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 4, "caption_channels": 16}
        | {"cross_attention_dim": 24, "sample_width": 4, "sample_height": 4, "sample_frames": 2},
        ONE_BATCH,
        texts(negative_prompt=None) | masks() | SIZE,
        EulerAncestralDiscreteScheduler,
    ),
    "EasyAnimate": Tiny(
        "EasyAnimatePipeline",
        "EasyAnimateTransformer3DModel",
        _EASY,
        ONE_BATCH,
        texts() | masks() | SIZE,
    ),
    "SANA-Video": Tiny(
        "SanaVideoPipeline",
        "SanaVideoTransformer3DModel",
        _SANA,
        ONE_BATCH,
        texts(height=32, width=32, frames=5, use_resolution_binning=False, negative_prompt=None) | masks(),
    ),
    "Motif": Tiny(
        "MotifVideoPipeline",
        "MotifVideoTransformer3DModel",
        _MOTIF,
        PREDICTIONS,
        texts() | masks() | SIZE,
        parts=_GUIDER,
    ),
    "Motif image": Tiny(
        "MotifVideoImage2VideoPipeline",
        "MotifVideoTransformer3DModel",
        _MOTIF,
        PREDICTIONS,
        texts(image=IMAGE, prompt=None) | masks() | SIZE,
        parts=_GUIDER,
    ),
    "AnyFlow": Tiny(
        "AnyFlowPipeline",
        "AnyFlowTransformer3DModel",
        WAN,
        ONE_BATCH,
        texts(guidance_scale=3.0) | SIZE,
        FlowMapEulerDiscreteScheduler,
    ),
    "Lucy": Tiny(
        "LucyEditPipeline", "WanTransformer3DModel", WAN | {"in_channels": 8}, NAMED, texts(video=VIDEO) | SIZE
    ),
    "CogVideoX video": Tiny(
        "CogVideoXVideoToVideoPipeline",
        "CogVideoXTransformer3DModel",
        _COGVIDEO | {"in_channels": 4, "max_text_seq_length": 8},
        NAMED_BATCH,
        texts(video=VIDEO, height=32, width=32, strength=1.0),
        CogVideoXDDIMScheduler,
    ),
    "CogVideoX control": Tiny(
        "CogVideoXFunControlPipeline",
        "CogVideoXTransformer3DModel",
        _COGVIDEO | {"max_text_seq_length": 8},
        NAMED_BATCH,
        texts(control_video=VIDEO, height=32, width=32),
        CogVideoXDDIMScheduler,
    ),
    "EasyAnimate inpaint": Tiny(
        "EasyAnimateInpaintPipeline",
        "EasyAnimateTransformer3DModel",
        _EASY | {"in_channels": 9},
        ONE_BATCH,
        texts(video=torch.zeros(1, 3, 5, 32, 32), mask_video=torch.zeros(1, 1, 5, 32, 32)) | masks() | SIZE,
    ),
    "HunyuanVideo SkyReels": Tiny(
        "HunyuanSkyreelsImageToVideoPipeline",
        "HunyuanVideoTransformer3DModel",
        _HUNYUAN | {"in_channels": 8, "patch_size": 1},
        UNNAMED,
        texts(image=IMAGE) | _POOLED | masks() | SIZE,
    ),
    "HunyuanVideo 1.5": Tiny(
        "HunyuanVideo15Pipeline",
        "HunyuanVideo15Transformer3DModel",
        HUNYUAN_15 | {"task_type": "t2v"},
        PREDICTIONS,
        texts() | GLYPHS | SIZE,
        parts=_GUIDER,
    ),
    "HunyuanVideo 1.5 image": Tiny(
        "HunyuanVideo15ImageToVideoPipeline",
        "HunyuanVideo15Transformer3DModel",
        HUNYUAN_15 | {"task_type": "i2v"},
        PREDICTIONS,
        texts(image=IMAGE, num_frames=5) | GLYPHS,
        parts=_GUIDER | {"image_encoder": ImageEncoder(3, 8), "feature_extractor": Part(preprocess=process)},
    ),
    "Kandinsky 5": Tiny(
        "Kandinsky5T2VPipeline", "Kandinsky5Transformer3DModel", _KANDINSKY, UNNAMED, _TWO_TEXTS | SIZE, flow(shift=7.0)
    ),
    "Kandinsky 5 image": Tiny(
        "Kandinsky5I2VPipeline",
        "Kandinsky5Transformer3DModel",
        _KANDINSKY | {"visual_cond": True},
        UNNAMED,
        _TWO_TEXTS | SIZE | {"image": IMAGE, "num_frames": 25},
    ),
    "Kandinsky 6": Tiny(
        "Kandinsky6TI2VAPipeline",
        "Kandinsky6Transformer3DModel",
        _KANDINSKY | {"visual_cond": True, "in_audio_dim": 4, "out_audio_dim": 4},
        NAMED,
        texts(pooled_prompt_embeds=embedding(8), negative_pooled_prompt_embeds=embedding(8, seed=1), sample_audio=False)
        | SIZE,
    ),
    "LTX image": Tiny(
        "LTXImageToVideoPipeline",
        "LTXVideoTransformer3DModel",
        LTX,
        NAMED_BATCH,
        texts(image=IMAGE) | masks() | SIZE,
    ),
    "Mochi": Tiny(
        "MochiPipeline",
        "MochiTransformer3DModel",
        {"in_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 4}
        | {"pooled_projection_dim": 16, "text_embed_dim": 16, "time_embed_dim": 4, "max_sequence_length": 8},
        NAMED_BATCH,
        texts() | masks(torch.bool) | SIZE | {"num_frames": 7},
        flow(invert_sigmas=True),
    ),
    "SANA image": Tiny(
        "SanaImageToVideoPipeline",
        "SanaVideoTransformer3DModel",
        _SANA,
        ONE_BATCH,
        texts(image=IMAGE, height=32, width=32, frames=5, use_resolution_binning=False, negative_prompt=None) | masks(),
    ),
    "SkyReels-V2": Tiny(
        "SkyReelsV2Pipeline", "SkyReelsV2Transformer3DModel", WAN, NAMED, texts() | SIZE, unipc(flow_shift=8.0)
    ),
    "SkyReels-V2 image": Tiny(
        "SkyReelsV2ImageToVideoPipeline",
        "SkyReelsV2Transformer3DModel",
        WAN | {"in_channels": 12, "image_dim": 16, "added_kv_proj_dim": 24},
        NAMED,
        _LONG_TEXTS | {"image": IMAGE} | SIZE,
        unipc(flow_shift=8.0),
        _CLIP,
    ),
    "SkyReels-V2 forcing": FORCING,
    "SkyReels-V2 forcing image": replace(
        FORCING, pipeline="SkyReelsV2DiffusionForcingImageToVideoPipeline", arguments=texts(image=IMAGE) | SIZE
    ),
    "SkyReels-V2 forcing video": replace(
        FORCING,
        pipeline="SkyReelsV2DiffusionForcingVideoToVideoPipeline",
        arguments=texts(video=VIDEO, overlap_history=5, num_frames=13, base_num_frames=13, height=32, width=32),
    ),
}
