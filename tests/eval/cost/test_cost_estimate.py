"""What an estimate says, how fast, and what it refuses."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import galaxydit
from galaxydit import GalaxyDiTError
from galaxydit.eval.cost.architecture import architecture_of
from galaxydit.eval.cost.hardware import BACKENDS, CUDNN, FLASH, FLASH_3, GPUS, gpu_named, kernel_of
from galaxydit.eval.cost.predict import Platform, Workload, fitted, predict, splits
from galaxydit.pipelines.published_models import CHECKPOINTS

H100 = Platform(GPUS["H100"], FLASH)
SIZES = {"size": "832x480", "frames": 81, "steps": 50}


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "a100", "rtx-4090"])
@pytest.mark.parametrize("model", CHECKPOINTS)
def test_every_published_checkpoint_is_estimated(model: str, gpu: str) -> None:
    made = galaxydit.estimate(model, gpu=gpu, speedup=2.0)
    assert made.accelerated is not None
    assert 0 < made.accelerated.batch_latency_s.value < made.plain.batch_latency_s.value
    assert 0 < (made.saved_joules or 0) < made.plain.energy_per_video_joules.value
    assert made.plain.avg_power_watts.value <= GPUS[made.gpu].watts
    assert made.plain.batch_latency_s.low < made.plain.batch_latency_s.value < made.plain.batch_latency_s.high


@pytest.mark.parametrize(("steps", "said"), [(8, "nothing is saved"), (25, "galaxydit calibrate"), (26, None)])
def test_steps_that_are_too_few_to_reuse_any_are_told(steps: int, said: str | None) -> None:
    made = galaxydit.estimate("kandinsky-6-pro-distill", steps=steps, speedup=2.0)
    assert (said is None) == (made.notes == ())
    assert said is None or f"{steps} steps are too few to reuse any" in made.notes[0]
    assert said is None or said in made.notes[0]
    assert galaxydit.estimate("kandinsky-6-pro-distill", steps=steps).notes == ()


def test_an_estimate_loads_neither_torch_nor_diffusers() -> None:
    code = (
        "import sys, galaxydit; galaxydit.estimate('wan2.1-t2v-14b', speedup=2.0); "
        "print([m for m in ('torch', 'diffusers', 'transformers', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("model", "seconds", "joules"), [("1.3b", 95.4, 64672), ("14b", 466.8, 289253)])
def test_one_h100_is_near_the_published_measurement(model: str, seconds: float, joules: float) -> None:
    made = galaxydit.estimate(f"wan2.1-t2v-{model}", **SIZES, attention="flash").plain
    assert made.batch_latency_s.value == pytest.approx(seconds, rel=0.1)
    assert made.energy_per_video_joules.value == pytest.approx(joules, rel=0.1)


def test_the_plugin_leaves_text_encoder_and_decoder_as_they_are() -> None:
    made = galaxydit.estimate("wan2.1-t2v-1.3b", speedup=2.0)
    assert made.accelerated is not None
    assert made.accelerated.decoder_s == made.plain.decoder_s
    assert made.accelerated.text_encoder_s == made.plain.text_encoder_s
    assert made.accelerated.denoise_s.value == pytest.approx(made.plain.denoise_s.value / 2)
    assert 0 < made.accelerated.plugin_s.value < 0.1 * made.accelerated.denoise_s.value


def test_the_plugin_keeps_as_much_as_the_paper_says() -> None:
    made = galaxydit.estimate("wan2.1-t2v-14b", speedup=2.0, reuse="residual").accelerated
    assert made is not None
    assert made.plugin_bytes / 2**30 == pytest.approx(2.88, abs=0.01)


def test_attention_grows_with_the_square_of_the_tokens() -> None:
    constants, _ = fitted()
    shape = replace(architecture_of("wan2.1-t2v-1.3b"), text_tokens=0)
    small, large = (predict(Workload(shape, side, side, 1, 50), H100, constants) for side in (1024, 2048))
    assert large.attention / small.attention == pytest.approx(16, rel=0.02)
    assert large.matrix_products / small.matrix_products == pytest.approx(4, rel=0.05)


def test_the_video_is_decoded_and_the_idle_watts_paid_on_every_gpu() -> None:
    constants, _ = fitted()
    work = Workload(architecture_of("wan2.1-t2v-1.3b"), 480, 832, 81, 50)
    one, eight = (predict(work, each, constants) for each in (H100, replace(H100, ulysses=4, ring=2)))
    assert eight.decoder == one.decoder
    assert eight.joules > one.joules
    assert eight.exchange > 0 == one.exchange


def test_the_ulysses_degree_divides_the_heads() -> None:
    shape = architecture_of("wan2.1-t2v-1.3b")
    platforms = [replace(H100, ulysses=ulysses, ring=ring) for ulysses, ring in splits(shape, 8)]
    assert [each.split for each in platforms] == ["ring 8", "Ulysses 2, ring 4", "Ulysses 4, ring 2"]
    with pytest.raises(GalaxyDiTError, match="ring=1 is not allowed: expected one of 8, 4, 2 at 8 GPUs"):
        galaxydit.estimate("wan2.1-t2v-1.3b", gpus=8, ring=1)
    assert galaxydit.estimate("wan2.1-t2v-1.3b", gpus=8, ring=8).split == "ring 8"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("model", {"model": "wan"}),
        ("gpu", {"gpu": "v100"}),
        ("attention", {"attention": "xformers"}),
        ("attention", {"attention": "_flash_3", "gpu": "A100"}),
        ("gpu", {"gpu": 3}),
        ("size", {"size": "1280*720"}),
        ("size", {"size": "0x0"}),
        ("frames", {"frames": -1}),
        ("steps", {"steps": 2.5}),
        ("speedup", {"speedup": 0.5}),
        ("gpus", {"gpus": 0}),
        ("videos", {"videos": 0}),
        ("price", {"price": -1.0}),
        ("price", {"price": 1e308, "videos": 100_000}),  # the price of all videos would be infinite
        ("reuse", {"reuse": "blocks"}),
    ],
)
def test_what_is_not_allowed_is_refused_by_name(field: str, options: dict[str, object]) -> None:
    with pytest.raises(GalaxyDiTError, match=f"^{field}="):
        galaxydit.estimate(**{"model": "wan2.1-t2v-1.3b"} | options)  # type: ignore[arg-type]


def test_a_shape_that_was_not_verified_is_named_so() -> None:
    assert "not verified" in galaxydit.estimate("kandinsky-5-t2v-lite").sources[0]
    assert "not verified" not in galaxydit.estimate("wan2.1-t2v-14b").sources[0]


def test_the_price_is_that_of_all_gpus_and_videos() -> None:
    made = galaxydit.estimate("wan2.1-t2v-14b", gpus=4, videos=1000, price=2.5).plain
    assert made.price is not None
    assert made.price.value == pytest.approx(made.batch_latency_s.value / 3600 * 4 * 1000 * 2.5)
    assert galaxydit.estimate("wan2.1-t2v-14b").plain.price is None


def test_json_has_the_names_of_the_leaderboard() -> None:
    data = json.loads(json.dumps(galaxydit.estimate("wan2.1-t2v-14b", speedup=2.0).to_dict()))
    assert {"batch_latency_s", "energy_per_video_joules", "avg_power_watts"} <= data["plain"].keys()
    assert data["saved_joules"] > 0


@pytest.mark.parametrize(
    ("torch", "gpu", "kernel"),
    [
        ("2.11.0", "H100", CUDNN),
        ("2.13.0+cpu", "B200", CUDNN),
        ("2.12.0+cu128", "H100", FLASH),
        ("2.9.1", "H200", FLASH),
        ("2.11.0", "A100", FLASH),
        ("2.11.0", "RTX 4090", FLASH),
    ],
)
def test_the_default_kernel_is_that_of_the_installed_pytorch(
    torch: str, gpu: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("galaxydit.eval.cost.hardware.version", lambda _: torch)
    assert kernel_of("native", GPUS[gpu]) == kernel
    assert galaxydit.estimate("wan2.1-t2v-1.3b", gpu=gpu).attention == kernel


def test_backends_have_the_names_of_diffusers() -> None:
    from diffusers.models.attention_dispatch import AttentionBackendName

    known = {name.value for name in AttentionBackendName}
    assert {name for names in BACKENDS.values() for name in names} < known


def test_a_faster_kernel_and_compiled_blocks_take_fewer_seconds() -> None:
    made = [
        galaxydit.estimate("wan2.1-t2v-1.3b", attention=name, compiled=compiled).plain.batch_latency_s.value
        for name, compiled in (("flash", False), ("_native_cudnn", False), ("_native_cudnn", True), ("_flash_3", True))
    ]
    assert made == sorted(made, reverse=True)
    assert made[0] > 1.25 * made[1] > 1.25 * made[2]


def test_a_mask_costs_cudnn_its_lead() -> None:
    assert galaxydit.estimate("hunyuanvideo", attention="_native_cudnn").attention == FLASH
    assert galaxydit.estimate("hunyuanvideo", attention="_flash_3").attention == FLASH_3


def test_what_is_extrapolated_is_named_so_and_has_wider_intervals() -> None:
    made = galaxydit.estimate("wan2.1-t2v-1.3b", gpu="rtx-4090")
    assert "extrapolated" in " ".join(made.sources)
    assert made.plain.batch_latency_s.high / made.plain.batch_latency_s.value >= 1.29
    assert "extrapolated" not in " ".join(galaxydit.estimate("wan2.1-t2v-1.3b", attention="flash").sources)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 PCIe", None),
        ("Intel Xeon", None),
    ],
)
def test_a_product_is_known_where_its_data_sheet_is(product: str, name: str | None) -> None:
    assert gpu_named(product) == (None if name is None else GPUS[name])


def test_power_never_exceeds_the_limit() -> None:
    constants, _ = fitted()
    hungry = replace(constants.gpus["H100"], joules_per_attention_flop=1e-11)
    limited = replace(constants, gpus=constants.gpus | {"H100": hungry})  # type: ignore[operator]
    made = predict(Workload(architecture_of("hunyuanvideo"), 720, 1280, 129, 50), H100, limited)
    assert made.denoising_joules == pytest.approx(700 * made.denoising)


@pytest.mark.parametrize("model", ["zai-org/CogVideoX-5b", "Wan-AI/Wan2.1-T2V-14B", "tencent/HunyuanVideo"])
def test_a_model_is_known_under_other_organisations_and_before_conversion(model: str) -> None:
    assert galaxydit.estimate(model).steps == 50


def test_a_known_shape_without_known_settings_needs_them() -> None:
    with pytest.raises(GalaxyDiTError, match="pass size, frames and steps"):
        galaxydit.estimate("zai-org/CogVideoX1.5-5B")
    made = galaxydit.estimate("zai-org/CogVideoX1.5-5B", size="1360x768", frames=81, steps=50)
    assert made.plain.batch_latency_s.value > galaxydit.estimate("cogvideox-5b").plain.batch_latency_s.value
