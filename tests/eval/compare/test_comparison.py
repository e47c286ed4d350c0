"""The whole comparison on a tiny random pipeline: kills, repeats, failures, and what it refuses."""

import json
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline, WanTransformer3DModel
from PIL import Image

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare import bench as bench_module
from galaxydit.eval.compare import comparison as comparison_module
from galaxydit.eval.compare.bench import Bench
from galaxydit.eval.compare.comparison import run_comparison
from galaxydit.eval.compare.every_method import EVERY_METHOD, choose_methods
from galaxydit.eval.compare.markdown import markdown
from galaxydit.eval.compare.method import Attached, Method
from galaxydit.eval.compare.methods import fewer_steps, uniform_skip
from galaxydit.eval.compare.pareto_plot import colours_of, plot_pareto, spread_out
from galaxydit.eval.compare.plan import Case, ComparisonPlan
from galaxydit.eval.compare.registry import METHOD_SOURCES, NEEDS
from galaxydit.eval.compare.side_by_side import save_videos
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.loading import load_pipeline
from galaxydit.pipelines.runs import InProcess, OnRay, new_record
from galaxydit.pipelines.video import load_video, to_uint8

PLAN = ComparisonPlan(
    prompts=("a red ball", "a blue square"),
    seeds=(0,),
    calibration_prompts=("a green ball", "a cyan ball"),
    speedups=(2.0,),
    tuned=1,
)
FEWER, UNIFORM = fewer_steps.METHOD, uniform_skip.METHODS[0]
SETTINGS = {
    "fewer steps": [{"steps": count} for count in (7, 6, 4)],
    "uniform skip order 0": [{"steps": 10, "full_steps": count} for count in (7, 5, 4)],
}
METHODS = tuple(replace(m, settings=lambda steps, m=m: SETTINGS[m.name]) for m in (FEWER, UNIFORM))
SECONDS = ("seconds", "speedup", "disturbance", "load")


@pytest.fixture
def settings(tiny_settings):
    return replace(tiny_settings, steps=10)


@pytest.fixture
def generations(monkeypatch):
    """The prompts generated so far; a number in `kill_after` ends the process there."""
    state = type("State", (), {"prompts": [], "kill_after": None})()
    generate = bench_module.generate

    def counted(pipe, prompt, *rest):
        if state.kill_after is not None and len(state.prompts) >= state.kill_after:
            raise KeyboardInterrupt
        state.prompts.append(prompt)
        return generate(pipe, prompt, *rest)

    monkeypatch.setattr(bench_module, "generate", counted)
    return state


def without_seconds(folder):
    def clean(value):
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if not any(word in k for word in SECONDS) or k == "speedups"}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return clean(json.loads((folder / "results.json").read_text()))


def test_a_killed_run_goes_on_and_gives_the_same_results(tiny_wan_pipeline, settings, tmp_path, generations):
    run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "whole")
    whole, generations.prompts[:] = len(generations.prompts), []
    for kill_after in (3, 8):
        generations.kill_after = kill_after
        with pytest.raises(KeyboardInterrupt):
            run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "killed")
    generations.kill_after = None
    run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "killed")
    assert without_seconds(tmp_path / "killed") == without_seconds(tmp_path / "whole")
    assert len(generations.prompts) <= whole + 2  # each start times one plain generation again

    generations.prompts.clear()
    before = (tmp_path / "killed" / "results.json").read_text()
    run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "killed")
    assert generations.prompts == []
    assert (tmp_path / "killed" / "results.json").read_text() == before


def test_on_ray_the_results_are_those_of_one_process(
    tiny_wan_pipeline, tiny_wan_folder, settings, tmp_path, monkeypatch
):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'galaxydit[ray]'")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "here")
    load = partial(load_pipeline, tiny_wan_folder, dtype=torch.float32)
    with OnRay(workers=2) as executor:
        shared = run_comparison(
            tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path / "ray", executor=executor, load=load
        )
    assert not shared.failed
    assert without_seconds(tmp_path / "here") == without_seconds(tmp_path / "ray")


def test_results_tables_plot_and_videos(tiny_wan_pipeline, settings, tmp_path):
    comparison = run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path)
    around = [row.setting["steps"] for row in comparison.rows if row.method == "fewer steps"]
    assert min(around) == 4  # the other one, around a speedup of 2, may be off the front of a random model
    (exact,) = (row for row in comparison.rows if row.method == "uniform skip order 0")
    assert exact.setting["full_steps"] == 5
    assert exact.compute_fraction == pytest.approx(0.5)
    assert exact.n == 2
    assert exact.bytes_held > 0
    names = [one.method for one in comparison.at_speedups]
    assert set(names) == {"fewer steps", "uniform skip order 0"}
    text = markdown(comparison)
    assert "| uniform skip order 0 |" in text
    assert "full_steps=5 (2.00x)" in text
    plot_pareto(comparison, tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").stat().st_size > 10_000
    (path,) = save_videos(comparison, Bench(tiny_wan_pipeline, settings, tmp_path, METHODS), tmp_path)
    frames, height, width, _ = load_video(path).shape
    assert frames == 5
    assert height > 256
    shown = [one for one in comparison.at_speedups if one.psnr is not None]
    assert shown
    assert width >= (1 + len(shown)) * 256


def test_prompts_may_name_images(tiny_wan_pipeline, settings, tmp_path, generations):
    lines = []
    for colour in ("red", "blue", "green", "cyan"):
        Image.new("RGB", (32, 32), colour).save(tmp_path / f"{colour}.png")
        lines.append(json.dumps({"prompt": "a ball", "image": str(tmp_path / f"{colour}.png")}))
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    config = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(config).eval())
    pipe.set_progress_bar_config(disable=True)
    plan = replace(PLAN, prompts=tuple(lines[:2]), calibration_prompts=tuple(lines[2:]))
    comparison = run_comparison(pipe, METHODS, plan, settings, tmp_path / "out")
    assert {row.n for row in comparison.rows} == {2}
    assert set(lines[:3]) <= set(generations.prompts)
    (path,) = save_videos(comparison, Bench(pipe, settings, tmp_path / "out", METHODS), tmp_path)
    assert load_video(path).shape[0] == 5


def test_tuning_never_generates_a_scored_prompt(tiny_wan_pipeline, settings, tmp_path, generations):
    asked = []

    def calibrate(pipe, prompts, settings, seed):
        asked.extend(prompts)
        return {}

    method = replace(METHODS[0], calibrate=calibrate)
    run_comparison(tiny_wan_pipeline, [method], PLAN, settings, tmp_path)
    first_scored = next(i for i, prompt in enumerate(generations.prompts) if prompt in PLAN.prompts)
    assert set(generations.prompts[:first_scored]) == set(asked) == set(PLAN.tuning_prompts)
    assert set(generations.prompts[first_scored:]) == set(PLAN.prompts)


def test_settings_that_ask_for_a_wanted_speedup_are_scored_whatever_tuning_found(
    tiny_wan_pipeline, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(comparison_module, "bracket", lambda candidates, speedups, scored: [])
    asking = next(one for one in EVERY_METHOD if one.name == "galaxydit without a profile")
    method = replace(asking, settings=lambda steps: [{"speedup": value} for value in (1.25, 1.5, 1.75, 2.0)])
    plan = replace(PLAN, speedups=(1.5, 2.0))
    found = run_comparison(tiny_wan_pipeline, [method], plan, settings, tmp_path)
    assert [row.setting for row in found.rows] == [{"speedup": 1.5}, {"speedup": 2.0}]


def test_methods_that_calibrate_alike_do_it_once(tiny_wan_pipeline, settings, tmp_path):
    calls = []

    def calibrate(pipe, prompts, settings, seed):
        calls.append(prompts)
        return {}

    alike = [replace(method, calibrate=calibrate, identity=None) for method in METHODS]
    bench = Bench(tiny_wan_pipeline, settings, tmp_path, alike)
    first, second = bench.measure([bench.calibration_unit(method, ["a"], 0) for method in alike])
    assert first.unit == second.unit
    assert calls == [["a"]]
    alone = Bench(tiny_wan_pipeline, settings, tmp_path, alike[1:])
    assert alone.calibration_unit(alike[1], ["a"], 0).id == first.unit


def test_a_prompt_both_tuned_and_scored_is_refused():
    with pytest.raises(
        GalaxyDiTError,
        match=r"prompts='a red ball' is not allowed: expected none of the calibration prompts.* 1;",
    ):
        replace(PLAN, calibration_prompts=("a", "a red ball"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("speedups", (0.5,), r"speedups=0.5 is not allowed: expected a number from 1.05 to 10"),
        ("speedups", (), r"speedups=\[\] is not allowed: expected one or more"),
        ("tuned", 3, r"tuned=3 is not allowed: expected 1 to 2, the number of calibration prompts"),
        ("seeds", (2**64 - 1,), r"seeds=18446744073709551615 .* expected at most 18446744073709451614"),
        ("seeds", (1, 1), r"seeds=\[1, 1\] is not allowed: expected one or more different values"),
    ],
)
def test_a_bad_plan_is_refused_with_what_is_allowed(field, value, message):
    with pytest.raises(GalaxyDiTError, match=message):
        replace(PLAN, **{field: value})


def test_the_first_run_sees_the_calibration_as_a_resumed_one_does(tiny_wan_pipeline, settings, tmp_path):
    method = replace(METHODS[0], calibrate=lambda pipe, prompts, settings, seed: {"places": (1, 2)})

    def calibrated():
        bench = Bench(tiny_wan_pipeline, settings, tmp_path, [method])
        (record,) = bench.measure([bench.calibration_unit(method, ["a"], 0)])
        return record.result

    assert calibrated() == calibrated() == {"places": [1, 2]}


def test_an_unknown_method_is_refused_with_a_proposal():
    with pytest.raises(
        GalaxyDiTError,
        match=r"methods='EasiCache' is not allowed: expected all, published, ablations, .*; did you mean 'EasyCache'",
    ):
        choose_methods(["EasiCache", "SeaCache order 0"])
    assert [method.name for method in choose_methods(["TeaCache", "fewer steps"])] == ["fewer steps", "TeaCache"]


def test_a_method_without_its_package_is_left_out_of_all_and_refused_by_name(monkeypatch):
    monkeypatch.setattr("galaxydit.eval.compare.registry.find_spec", lambda module: None)
    assert not {method.name for method in choose_methods(["all"])} & set(NEEDS)
    name = next(iter(NEEDS))
    with pytest.raises(GalaxyDiTError, match=rf"methods='{name}' .* are installed, and {NEEDS[name]} is not; pip"):
        choose_methods([name])


def test_the_registry_names_every_method():
    assert [method.name for method in EVERY_METHOD] == [*METHOD_SOURCES]


def test_a_method_that_fails_is_left_out_and_named(tiny_wan_pipeline, settings, tmp_path):
    @contextmanager
    def attach(pipe, setting, calibration):
        raise RuntimeError("no such\nblock")
        yield Attached(lambda: 0)

    broken = Method("broken", lambda steps: [{"x": 1}, {"x": 2}], attach)
    comparison = run_comparison(tiny_wan_pipeline, [broken, METHODS[0]], PLAN, settings, tmp_path)
    assert comparison.failed == {"broken": "RuntimeError: no such block"}
    assert {row.method for row in comparison.rows} == {"fewer steps"}
    assert "broken: RuntimeError: no such block" in markdown(comparison)
    with pytest.raises(GalaxyDiTError, match=r"every method failed, .*; broken: RuntimeError: no such block"):
        run_comparison(tiny_wan_pipeline, [broken], PLAN, settings, tmp_path)


def test_a_method_whose_workers_die_is_left_out_with_that_reason(tiny_wan_pipeline, settings, tmp_path):
    class Dying(InProcess):
        def work(self, groups, maker, store, progress):
            for unit in (unit for group in groups for unit in group if unit.data["method"] == METHODS[1].name):
                store.commit(new_record(unit, None, "10 workers died while they made this unit"), {})
            super().work(groups, maker, store, progress)

    comparison = run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path, executor=Dying())
    assert comparison.failed == {METHODS[1].name: "10 workers died while they made this unit"}


def test_a_model_that_needs_an_image_is_measured(tiny_wan_pipeline, settings, tmp_path):
    config = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(config).eval())
    Image.new("RGB", (32, 32)).save(tmp_path / "black.png")
    case = Case(json.dumps({"prompt": "a red ball", "image": str(tmp_path / "black.png")}), 0)
    bench = Bench(pipe, settings, tmp_path / "out", [FEWER])
    (record,) = bench.measure([bench.sample_unit(FEWER, None, {"steps": 5}, case, keep=False)])
    assert record.result["compute_fraction"] == pytest.approx(0.5)


def test_a_result_depends_on_all_that_it_was_measured_under(tiny_wan_pipeline, settings, tmp_path, generations):
    case, setting = Case("a", 0), {"steps": 4}

    def is_measured_anew(method=FEWER, setting=setting, calibration=None):
        before = len(generations.prompts)
        bench = Bench(tiny_wan_pipeline, settings, tmp_path, [method])
        unit = bench.calibration_unit(replace(method, calibrate=lambda *_: calibration), [str(calibration)], 0)
        calibrated = bench.store.commit(new_record(unit, calibration), {}).unit if calibration else None
        bench.measure([bench.sample_unit(method, calibrated, setting, case, keep=False)])
        return len(generations.prompts) > before

    assert is_measured_anew()
    assert not is_measured_anew()
    assert is_measured_anew(setting={"steps": 5})
    assert is_measured_anew(calibration="a")
    assert is_measured_anew(method=replace(FEWER, identity=lambda pipe: "new"))
    assert not is_measured_anew()
    tiny_wan_pipeline.text_encoder.get_input_embeddings().weight.data[0, 0] += 1
    assert is_measured_anew()


def test_units_of_a_changed_image_are_other_units_and_those_of_a_text_name_no_files(
    tiny_wan_pipeline, settings, tmp_path
):
    line = json.dumps({"prompt": "a ball", "image": str(tmp_path / "ball.png")})

    def units(prompt):
        bench, case = Bench(tiny_wan_pipeline, settings, tmp_path / "out", [FEWER]), Case(prompt, 0)
        sample = bench.sample_unit(FEWER, None, {"steps": 4}, case, keep=False)
        return sample, bench.plain_unit(case), bench.calibration_unit(FEWER, ["a", prompt], 0)

    Image.new("RGB", (32, 32), "red").save(tmp_path / "ball.png")
    red, again = units(line), units(line)
    Image.new("RGB", (32, 32), "blue").save(tmp_path / "ball.png")
    for before, same, changed in zip(red, again, units(line), strict=True):
        assert before.id == same.id != changed.id
    assert not any("files" in unit.data for unit in units("a ball"))


def test_a_folder_of_others_is_refused_before_anything_is_written(tiny_wan_pipeline, settings, tmp_path):
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames" / "my.png").write_text("mine")
    with pytest.raises(GalaxyDiTError, match="neither empty nor a run"):
        run_comparison(tiny_wan_pipeline, METHODS, PLAN, settings, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["frames", "my.png"]


def test_a_plain_video_is_kept(tiny_wan_pipeline, settings, tmp_path, generations):
    benches = [Bench(tiny_wan_pipeline, settings, tmp_path, []) for _ in range(2)]
    first, again = (bench.frames(bench.plain_unit(Case("a", 0))) for bench in benches)
    assert np.array_equal(first, again)
    assert np.array_equal(first, to_uint8(generate(tiny_wan_pipeline, "a", settings, 0).frames))
    assert len(generations.prompts) == 1


def test_labels_are_moved_apart_and_stay_below_the_top():
    assert spread_out([0.1, 0.5, 0.52, 0.99, 0.995], 0.05) == pytest.approx([0.1, 0.485, 0.535, 0.95, 1.0])


def test_controls_are_grey_and_others_have_colours_of_their_own():
    colours = colours_of({"a": "control", "b": "paper", "c": "project", "galaxydit": "this project"})
    assert len(set(colours.values())) == 4
    assert colours["a"] == "#7f7f7f"


def test_a_plan_is_plain_data():
    assert json.loads(json.dumps(asdict(PLAN)))["speedups"] == [2.0]


def test_published_settings_are_all_scored_and_none_is_tuned(tiny_wan_pipeline, settings, tmp_path, generations):
    published = METHODS[1].published(METHODS[1].settings)
    comparison = run_comparison(tiny_wan_pipeline, [published], PLAN, settings, tmp_path)
    assert [row.setting["full_steps"] for row in comparison.rows] == [7, 5, 4]
    assert {row.method for row in comparison.rows} == {"uniform skip order 0 published"}
    assert not set(generations.prompts) & set(PLAN.calibration_prompts)
