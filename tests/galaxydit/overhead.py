"""CPU seconds of the plugin beside those of another checkout, in paired whole-process runs.

    python -m tests.galaxydit.overhead --against ../other-checkout --pairs 20

Each run is a process of its own that makes tiny videos: "calls" has 1,000 transformer calls of one video, "batch" four
videos that decide by a proxy. CPU seconds are compared, because other processes lengthen the others; the ratio's 95 %
interval is a bootstrap over the pairs.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

CASES = {"calls": "speedup=2.0", "batch": "speedup=2.0, policy='proxy'"}
PROGRAM = """
import time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from diffusers import UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
import galaxydit
torch.manual_seed(0)
transformer = WanTransformer3DModel(num_attention_heads=2, attention_head_dim=12, text_dim=16, freq_dim=16, ffn_dim=32,
                                    num_layers=4, in_channels=16, out_channels=16).eval()
scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
pipe = WanPipeline(tokenizer=None, text_encoder=None, vae=None, scheduler=scheduler, transformer=transformer)
pipe.set_progress_bar_config(disable=True)
rows = {rows}
texts = torch.randn(2, rows, 8, 16)
def run():
    pipe(prompt_embeds=texts[0], negative_prompt_embeds=texts[1], height=64, width=64, num_frames=5,
         num_inference_steps=50, output_type="latent")
with galaxydit.accelerate(pipe, {settings}):
    run()
    begun = time.process_time()
    for _ in range(10):
        run()
    print(time.process_time() - begun)
"""


def seconds(tree: Path, case: str) -> float:
    """CPU seconds of ten videos of 50 steps and two branches, after one that warms up."""
    program = PROGRAM.format(rows=4 if case == "batch" else 1, settings=CASES[case])
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tree, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=20)
    given = parser.parse_args()
    own = Path(__file__).resolve().parents[2]
    for case in CASES:
        ratios = []
        for pair in range(given.pairs):
            order = (own, given.against) if pair % 2 else (given.against, own)
            taken = {tree: seconds(tree, case) for tree in order}
            ratios.append(taken[own] / taken[given.against])
        drawn = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
        low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
        print(f"{case}: median ratio {np.median(ratios):.3f} ({low:.3f} to {high:.3f}), {len(ratios)} pairs")  # noqa: T201
    print(f"peak memory {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024} MiB")  # noqa: T201


if __name__ == "__main__":
    main()
