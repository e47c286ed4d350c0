"""A transformer whose blocks lie on several devices, as `device_map="auto"` places them.

Shapes and devices are those of a GPU, and nothing is computed: tensors are fake, and mixing two devices is an error.
"""

import subprocess
import sys

PROGRAM = """
import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("npu")
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from diffusers import WanTransformer3DModel
from torch._subclasses.fake_tensor import FakeTensorMode
import galaxydit
from galaxydit import FixedSteps, GalaxyDiTConfig
from galaxydit.runtime import correction_weights
from galaxydit.runtime.reuse import StepReuse


def place(module, device):
    for part in module.modules():
        for name, weights in list(part._parameters.items()):
            if weights is not None:
                part._parameters[name] = torch.nn.Parameter(weights.detach().to(device), requires_grad=False)
        for name, values in list(part._buffers.items()):
            part._buffers[name] = values.to(device)
    hook = AlignDevicesHook(execution_device=torch.device(device), io_same_device=device == "npu:0")
    add_hook_to_module(module, hook)

correction_weights.may_correct = lambda generation: True  # no scheduler here, as fake sigmas have no values
with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
    with torch.device("cpu"):
        transformer = WanTransformer3DModel(
            num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=32,
            ffn_dim=32, num_layers=4, rope_max_seq_len=32,
        ).eval()
    place(transformer, "npu:0")
    for module in (*transformer.blocks[2:], transformer.norm_out, transformer.proj_out):
        place(module, "npu:1")
    latent, text = torch.empty(1, 4, 2, 4, 4, device="npu:0"), torch.empty(1, 8, 16, device="npu:0")
    for reuse, order in (("output", 1), ("residual", 1)):
        config = GalaxyDiTConfig(FixedSteps((0, 1, 4, 8, 11)), reuse=reuse, order=order)
        with galaxydit.accelerate(transformer, config=config) as acceleration:
            for step in range(12):
                timestep = torch.empty(1, device="npu:0", dtype=torch.long)
                told = {"step_index": step, "num_inference_steps": 12, "sigma": 1 - step / 12}
                for branch in ("cond", "uncond"):
                    with transformer.cache_context(branch, **told):
                        output = transformer(latent, timestep, text, return_dict=False)[0]
        print(reuse, order, output.device, acceleration.report.reused_steps)
"""


def test_blocks_on_two_devices_are_computed_and_reused() -> None:
    """All in one process, which takes longer to start than to compute."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cases = [f"{reuse} {order} npu:0 7" for reuse, order in (("output", 1), ("residual", 1))]
    assert done.stdout.splitlines() == cases
