"""Accelerate a modular pipeline whose transformer has a LoRA and compiled blocks.

python pipelines/examples/modular_lora_compile.py --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --lora style.safetensors
"""

import argparse
from pathlib import Path

import torch
from diffusers import ClassifierFreeGuidance
from diffusers.modular_pipelines import WanBlocks

import galaxydit
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.published_models import recommended_settings
from galaxydit.pipelines.video import save_video


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="wan-tiny")
    parser.add_argument("--lora", help="a safetensors file, a folder or a hub id")
    parser.add_argument("--compile", action="store_true", help="compile the blocks, which pays off on a GPU")
    parser.add_argument("--prompt", default="a red ball moves left over a plain background")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", type=Path, default=Path("modular.mp4"))
    options = parser.parse_args(given)

    # The LoRA comes first and the plugin last, because hooks inside a compiled block would break its graph.
    source = load_pipeline(options.model, lora=options.lora, compile=options.compile)
    settings = recommended_settings(source)
    pipe = WanBlocks().init_pipeline()
    parts = {name: part for name, part in source.components.items() if name in pipe.component_names}
    pipe.update_components(**parts, guider=ClassifierFreeGuidance(settings.guidance_scale))
    with galaxydit.accelerate(pipe, speedup=2.0) as acceleration:
        (video,) = pipe(
            prompt=options.prompt,
            negative_prompt=settings.negative_prompt,
            height=settings.height,
            width=settings.width,
            num_frames=settings.num_frames,
            num_inference_steps=options.steps or settings.steps,
            generator=torch.Generator().manual_seed(0),
            output_type="np",
            output="videos",
        )
    save_video(video, options.out, settings.fps)
    acceleration.report.save(options.out.with_suffix(".json"))


if __name__ == "__main__":
    main()
