"""The whole comparison on a tiny random pipeline: kills, repeats, failures, and what it refuses."""

import json
import shutil
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import exit_code
from copied_makers import OnCopies
from diffusers import WanImageToVideoPipeline, WanTransformer3DModel
from matplotlib.figure import Figure
from PIL import Image

from galaxydit.commands.compare_command import scores_table
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.compare import compare_job, pareto_plot
from galaxydit.eval.compare.compare_job import SELECTION, CompareJob, Comparison
from galaxydit.eval.compare.compare_page import write_compare_page
from galaxydit.eval.compare.contender import Contender, contenders_of
from galaxydit.eval.compare.markdown import markdown, selection_lines
from galaxydit.eval.compare.pareto_plot import colours_of, plot_pareto, ticks_of
from galaxydit.eval.compare.plan import ComparisonPlan
from galaxydit.eval.compare.scored_settings import read_settings
from galaxydit.eval.compare.side_by_side import save_videos
from galaxydit.eval.jobs.job import Job
from galaxydit.eval.methods.method import METHODS as DECLARED
from galaxydit.eval.methods.method import Method
from galaxydit.eval.methods.method_registry import declared, load_method, names_of
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines import trial
from galaxydit.pipelines.psnr import HIGHEST_PSNR
from galaxydit.pipelines.runs import InProcess, new_record
from galaxydit.pipelines.trial import Attached
from galaxydit.pipelines.video import load_video
from galaxydit.policies.policy import FEW_STEPS

PLAN = ComparisonPlan(
    prompts=("a red ball", "a blue square"),
    seeds=(0,),
    calibration_prompts=("a green ball", "a cyan ball"),
    speedups=(2.0,),
    tuned=1,
)
SETTINGS = {
    "fewer steps": [{"steps": count} for count in (7, 6, 4)],
    "uniform skip order 0": [{"steps": 10, "full_steps": count} for count in (7, 5, 4)],
}
METHODS = tuple(replace(load_method(name), settings=lambda steps, name=name: SETTINGS[name]) for name in SETTINGS)
SECONDS = ("seconds", "speedup", "disturbance", "load")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def job(saved_tiny_wan: Path) -> Job:
    sizes = {"height": 32, "width": 32, "frames": 5, "guidance": 3.0}
    return Job(model=str(saved_tiny_wan), dtype="float32", steps=10, prompts=("",), **sizes)


@pytest.fixture(scope="module")
def compare(job: Job) -> Callable[..., Comparison]:
    def run(methods: Any, out: Path, plan: ComparisonPlan = PLAN, job: Job = job, **options: Any) -> Comparison:
        return CompareJob(job, contenders_of(methods), plan, out, **options).run()

    return run


def count_generations(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = type("State", (), {"prompts": [], "kill_after": None})()
    generate = trial.generate

    def counted(pipe, prompt, *rest, **options):
        if state.kill_after is not None and len(state.prompts) >= state.kill_after:
            raise KeyboardInterrupt
        state.prompts.append(prompt)
        return generate(pipe, prompt, *rest, **options)

    monkeypatch.setattr(trial, "generate", counted)
    return state


@pytest.fixture
def generations(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The prompts generated so far, without warm-ups; a number in `kill_after` ends the process there."""
    return count_generations(monkeypatch)


@dataclass(frozen=True)
class Finished:
    """A comparison of all methods that nothing disturbed."""

    comparison: Comparison
    folder: Path
    generations: int

    def copy_to(self, folder: Path) -> Comparison:
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return self.comparison


@pytest.fixture(scope="module")
def finished(compare: Callable[..., Comparison], tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("galaxydit.config.GENERAL_FEW_STEPS", FEW_STEPS)  # as in each test
        made = count_generations(patch)
        return Finished(compare(METHODS, folder), folder, len(made.prompts))


def without_seconds(folder):
    def clean(value):
        if isinstance(value, dict):
            return {k: clean(v) for k, v in value.items() if not any(word in k for word in SECONDS) or k == "speedups"}
        return [clean(item) for item in value] if isinstance(value, list) else value

    results = json.loads((folder / "results.json").read_text())
    assert results.pop("digest")  # also of the seconds
    return clean(results)


def test_a_killed_run_goes_on_and_gives_the_same_results(compare, finished, tmp_path, generations):
    for kill_after in (3, 8):
        generations.kill_after = kill_after
        with pytest.raises(KeyboardInterrupt):
            compare(METHODS, tmp_path / "killed")
    generations.kill_after = None
    compare(METHODS, tmp_path / "killed")
    assert without_seconds(tmp_path / "killed") == without_seconds(finished.folder)
    assert len(generations.prompts) <= finished.generations + 2  # each start may make one plain video again

    generations.prompts.clear()
    before = (tmp_path / "killed" / "results.json").read_text()
    compare(METHODS, tmp_path / "killed")
    assert generations.prompts == []
    assert (tmp_path / "killed" / "results.json").read_text() == before


def test_on_other_workers_the_results_are_those_of_one_process(compare, finished, tmp_path):
    shared = compare(METHODS, tmp_path / "shared", executor=OnCopies())
    assert not shared.failed
    assert without_seconds(finished.folder) == without_seconds(tmp_path / "shared")


def test_results_tables_plot_and_videos(finished, tmp_path):
    comparison = finished.copy_to(tmp_path)
    around = [row.setting["steps"] for row in comparison.rows if row.method == "fewer steps"]
    assert min(around) == 4  # the other one, around a speedup of 2, may be off the front of a random model
    (exact,) = (row for row in comparison.rows if row.method == "uniform skip order 0")
    assert exact.setting["full_steps"] == 5
    assert exact.compute_fraction == pytest.approx(0.5)
    assert exact.n == 2
    assert exact.bytes_held > 0
    assert exact.source == "control"
    names = [one.method for one in comparison.at_speedups]
    assert set(names) == {"fewer steps", "uniform skip order 0"}
    for name, counts in comparison.dropped.items():
        scored = sum(row.method == name for row in comparison.rows)
        assert scored + sum(counts.values()) == len(SETTINGS[name])
    assert set(comparison.dropped) == set(SETTINGS)
    text = markdown(comparison)
    assert "| uniform skip order 0 |" in text
    assert "full_steps=5 (2.00x)" in text
    assert "Sound was not measured: the video has no sound." in text
    assert "2 prompts with 1 seed each; settings tuned on 1 other prompt." in text
    assert "SI-SDR" not in text
    heard = replace(
        comparison,
        rows=tuple(replace(row, si_sdr_mean=12.5, log_mel_mean=1.25, rms_ratio_mean=0.987) for row in comparison.rows),
        at_speedups=tuple(replace(each, si_sdr=12.5) for each in comparison.at_speedups),
        unheard="",
    )
    text = markdown(heard)
    assert text.count("SI-SDR dB") == 1 + len(comparison.plan.speedups)
    assert "| 12.50 | 1.25 | 0.987 |" in text
    assert "Sound" not in text
    assert any("12.50" in cell for row in scores_table(heard, 2.0).renderables[0].rows for cell in row)
    plot_pareto(comparison, tmp_path / "pareto.png", "tiny")
    assert (tmp_path / "pareto.png").stat().st_size > 10_000
    (path,) = save_videos(comparison, tmp_path)
    frames, height, width, _ = load_video(path).shape
    assert frames == 5
    assert height > 256
    shown = [one for one in comparison.at_speedups if one.psnr is not None]
    assert shown
    page = write_compare_page(comparison, tmp_path, "<b>tiny</b>", tmp_path / "pareto.png", [path]).read_text()
    assert "Comparison on &lt;b&gt;tiny&lt;/b&gt;" in page
    assert f"stays nearest to the plain video: PSNR {shown[0].psnr:.1f} dB" in page
    assert f'src="{path.name}"' in page
    assert width >= (1 + len(shown)) * 256


def test_a_comparison_is_a_run_that_eval_reads(finished, tmp_path, capsys):
    comparison = finished.copy_to(tmp_path)
    run = read_run(tmp_path)
    assert len(run.records) == 2 * (1 + len(comparison.rows))
    assert {record.compute_unit for record in run.records} == {"operations", "steps"}
    assert sum(record.video is not None for record in run.records) == 1 + len(comparison.rows)
    for arguments in (["report"], ["export", "--no-parquet"], ["check", "--min", "psnr=0"]):
        assert exit_code("eval", arguments[0], str(tmp_path), *arguments[1:]) == 0
    assert "report.html" in capsys.readouterr().out


def test_settings_of_another_comparison_are_scored_without_tuning(compare, finished, tmp_path, generations):
    scored = read_settings(finished.folder / "results.json")
    comparison = compare(METHODS, tmp_path, scored=scored)
    assert [(row.method, row.setting) for row in comparison.rows] == [
        (row.method, row.setting) for row in finished.comparison.rows
    ]
    made = [prompt for prompt in generations.prompts if prompt in PLAN.calibration_prompts]
    assert len(made) == 1  # the first plain video, which tells the number of steps
    assert comparison.plan.settings_of == json.loads((finished.folder / "results.json").read_text())["digest"]
    assert comparison.dropped == {}
    assert "settings that another comparison chose." in markdown(comparison)
    assert "tuned on" not in markdown(comparison)


def test_prompts_may_name_images(compare, job, tiny_wan_pipeline, tmp_path, generations):
    lines = []
    for colour in ("red", "blue", "green", "cyan"):
        Image.new("RGB", (32, 32), colour).save(tmp_path / f"{colour}.png")
        lines.append(json.dumps({"prompt": "a ball", "image": str(tmp_path / f"{colour}.png")}))
    parts = {name: getattr(tiny_wan_pipeline, name) for name in ("tokenizer", "text_encoder", "vae", "scheduler")}
    config = dict(tiny_wan_pipeline.transformer.config) | {"in_channels": 36}
    pipe = WanImageToVideoPipeline(**parts, transformer=WanTransformer3DModel.from_config(config).eval())
    pipe.save_pretrained(tmp_path / "model")
    plan = replace(PLAN, prompts=tuple(lines[:2]), calibration_prompts=tuple(lines[2:]))
    comparison = compare(METHODS, tmp_path / "out", plan, replace(job, model=str(tmp_path / "model")))
    assert {row.n for row in comparison.rows} == {2}
    assert set(lines[:3]) <= set(generations.prompts)
    (path,) = save_videos(comparison, tmp_path / "out")
    assert load_video(path).shape[0] == 5
    Image.new("RGB", (32, 32), "white").save(tmp_path / "red.png")
    with pytest.raises(GalaxyDiTError, match=r"belongs to another job. Changed: files\..*red.png"):
        compare(METHODS, tmp_path / "out", plan, replace(job, model=str(tmp_path / "model")))


def test_tuning_never_generates_a_scored_prompt(compare, tmp_path, generations, monkeypatch):
    asked = []

    def calibrate(pipe, prompts, settings, seed):
        asked.extend(prompts)
        assert seed == 50_000
        return {}

    method = replace(METHODS[1], calibrate=calibrate)
    monkeypatch.setitem(DECLARED, method.name, method)
    compare([method], tmp_path)
    first_scored = next(i for i, prompt in enumerate(generations.prompts) if prompt in PLAN.prompts)
    assert set(generations.prompts[:first_scored]) == set(asked) == set(PLAN.tuning_prompts)
    assert set(generations.prompts[first_scored:]) == set(PLAN.prompts)


def test_settings_that_ask_for_a_wanted_speedup_are_scored_whatever_tuning_found(compare, tmp_path, monkeypatch):
    monkeypatch.setattr(compare_job, "bracket", lambda candidates, speedups, scored: [])
    asking = load_method("galaxydit without a profile")
    method = replace(asking, settings=lambda steps: [{"speedup": value} for value in (1.25, 1.5, 1.75, 2.0)])
    found = compare([method], tmp_path, replace(PLAN, speedups=(1.5, 2.0)))
    assert [row.setting for row in found.rows] == [{"speedup": 1.5}, {"speedup": 2.0}]


def test_methods_that_calibrate_alike_do_it_once(compare, tmp_path, monkeypatch):
    calls = []

    def calibrate(pipe, prompts, settings, seed):
        calls.append(prompts)
        return {}

    for name in ("uniform skip order 0", "uniform skip order 1"):
        monkeypatch.setitem(DECLARED, name, replace(METHODS[1], name=name, calibrate=calibrate))
    compare([DECLARED["uniform skip order 0"], DECLARED["uniform skip order 1"]], tmp_path)
    assert calls == [("a green ball",)]


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
        ("seeds", (2**64 - 1,), r"seeds=18446744073709551615 .* expected at most 9223372036854675806"),
        ("seeds", (1, 1), r"seeds=\[1, 1\] is not allowed: expected one or more different values"),
    ],
)
def test_a_bad_plan_is_refused_with_what_is_allowed(field, value, message):
    with pytest.raises(GalaxyDiTError, match=message):
        replace(PLAN, **{field: value})


def test_an_unknown_method_is_refused_with_a_proposal():
    with pytest.raises(
        GalaxyDiTError,
        match=r"methods='EasiCache' is not allowed: expected all, published, ablations, .*; did you mean 'EasyCache'",
    ):
        names_of(["EasiCache", "SeaCache order 0"])
    assert names_of(["TeaCache", "fewer steps"]) == ["fewer steps", "TeaCache"]


def test_a_method_without_its_package_is_left_out_of_all_and_refused_by_name(monkeypatch):
    monkeypatch.setattr("galaxydit.eval.methods.method_registry.find_spec", lambda module: None)
    needing = {each.name: each.needs for each in declared().values() if each.needs}
    assert needing
    assert not set(names_of(["all"])) & set(needing)
    name, needs = next(iter(needing.items()))
    with pytest.raises(GalaxyDiTError, match=rf"methods='{name}' .* are installed, and {needs} is not; pip"):
        names_of([name])


def test_a_method_that_fails_is_left_out_and_named(compare, tmp_path, monkeypatch):
    @contextmanager
    def attach(pipe, setting, calibration):
        raise RuntimeError("no such block")
        yield Attached(lambda: 0)

    broken = Method("broken", "paper", lambda steps: [{"x": 1}, {"x": 2}], attach)
    monkeypatch.setitem(DECLARED, "broken", broken)
    comparison = compare([broken, METHODS[0]], tmp_path)
    assert comparison.failed == {"broken": "RuntimeError: no such block"}
    assert {row.method for row in comparison.rows} == {"fewer steps"}
    assert "broken: RuntimeError: no such block" in markdown(comparison)
    with pytest.raises(GalaxyDiTError, match=r"every method failed, .*; broken: RuntimeError: no such block"):
        compare([broken], tmp_path)


def test_a_method_whose_workers_die_is_left_out_with_that_reason(compare, tmp_path):
    class Dying(InProcess):
        def work(self, groups, maker, store, progress):
            units = [unit for group in groups for unit in group]
            for unit in (unit for unit in units if unit.data["variant"]["method"] == METHODS[1].slug):
                store.commit(new_record(unit, None, "10 workers died while they made this unit"), {})
            yield from super().work(groups, maker, store, progress)

    comparison = compare(METHODS, tmp_path, executor=Dying())
    assert comparison.failed == {METHODS[1].name: "10 workers died while they made this unit"}


def test_videos_of_other_versions_are_refused_unless_they_are_allowed(compare, tmp_path, generations, monkeypatch):
    compare(METHODS[:1], tmp_path)
    monkeypatch.setattr("galaxydit.pipelines.conditions.code_identity", lambda: "0123456789abcdef")
    made = len(generations.prompts)
    compare(METHODS[:1], tmp_path)  # nothing is made, so nothing is mixed
    with pytest.raises(
        GalaxyDiTError, match=r"other versions: code [0-9a-f]{16} -> 0123456789abcdef; take a new --out"
    ):
        compare(METHODS, tmp_path)
    assert len(generations.prompts) == made
    assert {row.method for row in compare(METHODS, tmp_path, allow_mixed_versions=True).rows} == set(SETTINGS)


def test_another_profile_file_is_another_variant(tmp_path):
    path = tmp_path / "mine.json"
    contender = Contender("mine", load_method("galaxydit schedule"), profile=path)
    path.write_text("a")
    first = contender.variant({"speedup": 2.0})
    path.write_text("b")
    assert contender.variant({"speedup": 2.0}).name != first.name
    assert contender.variant({"speedup": 3.0}).name != first.name


def test_more_prompts_extend_a_comparison_and_others_are_refused(compare, tmp_path, generations):
    compare(METHODS[:1], tmp_path, replace(PLAN, prompts=PLAN.prompts[:1]))
    made = len(generations.prompts)
    assert {row.n for row in compare(METHODS[:1], tmp_path).rows} == {2}
    assert set(generations.prompts[made:]) == {PLAN.prompts[1]}
    with pytest.raises(GalaxyDiTError, match="prompts='a cat' is not allowed: expected those of the folder, or more"):
        compare(METHODS[:1], tmp_path, replace(PLAN, prompts=("a cat",)))


def test_a_folder_of_others_is_refused_before_anything_is_written(compare, tmp_path):
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames" / "my.png").write_text("mine")
    with pytest.raises(GalaxyDiTError, match="neither empty nor a run"):
        compare(METHODS, tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["frames", "my.png"]


def test_controls_are_grey_and_others_have_colours_of_their_own():
    sources = {"a": "control", "b": "paper", "c": "project", "schedule": "this project", "proxy": "this project"}
    colours = colours_of(sources)
    assert len(set(colours.values())) == 5
    assert colours["a"] == "#7f7f7f"


def test_an_axis_has_several_ticks_however_narrow_it_is():
    assert ticks_of(1.2, 3.2) == [1.25, 1.5, 2, 2.5, 3]
    assert ticks_of(0.1, 4.5) == [0.125, 0.25, 0.5, 1, 2, 4]
    assert ticks_of(1.88, 2.13) == pytest.approx([1.9, 2.0, 2.1])
    assert len(ticks_of(1.99, 2.01)) >= 3


def test_settings_that_left_a_video_unchanged_do_not_stretch_the_plot(finished):
    first, *others = finished.comparison.rows
    unchanged = replace(first, psnr_of_prompt=(HIGHEST_PSNR, 30.0), psnr_mean=75.0)
    figure = Figure(layout="constrained")
    pareto_plot.draw_pareto(replace(finished.comparison, rows=(unchanged, *others)), "tiny", figure)
    drawn = [psnr for line in figure.axes[0].lines for psnr in line.get_ydata()]
    assert max(drawn) == max(row.psnr_mean for row in others)
    alone = Figure(layout="constrained")
    pareto_plot.draw_pareto(replace(finished.comparison, rows=(unchanged,)), "tiny", alone)
    assert 75.0 in [psnr for line in alone.axes[0].lines for psnr in line.get_ydata()]


def test_settings_that_nobody_tuned_are_not_said_to_be_tuned(finished):
    published = [replace(row, method="TeaCache published") for row in finished.comparison.rows]
    text = markdown(replace(finished.comparison, rows=tuple(published)))
    assert "settings that were not tuned." in text
    assert "tuned on" not in text


@pytest.mark.parametrize(("reason", "lines"), [("", {"-"}), ("other work", {"None"})])
def test_points_of_disturbed_seconds_are_not_joined(reason, lines):
    speeds = ((1.5, 30.0), (1.4, 28.0))
    rows = [
        SimpleNamespace(denoise_speedup=speed, psnr_mean=psnr, psnr_of_prompt=(psnr,), disturbance=reason)
        for speed, psnr in speeds
    ]
    axes = Figure().subplots()
    pareto_plot.draw_method(axes, rows, "denoise_speedup", "a", {"color": "red", "marker": "o"})
    assert axes.lines[0].get_linestyle() in lines


def test_settings_that_were_dropped_are_counted_with_their_reasons():
    counts = {"a": {"not tried": 12, "screened": 0, "tuned": 3}, "b": dict.fromkeys(SELECTION, 0)}
    comparison = SimpleNamespace(rows=[SimpleNamespace(method="a")] * 2, dropped=counts)
    (line,) = selection_lines(comparison)
    assert line.startswith("a: 2 of 17 settings were scored; dropped: 12 not tried, because ")
    assert "3 slower and worse than others" in line


def test_a_plan_is_plain_data():
    assert json.loads(json.dumps(asdict(PLAN)))["speedups"] == [2.0]


def test_seeds_of_tuning_and_scoring_are_apart(job):
    assert PLAN.tuning(job).seeds_of(0) == (50_000,)
    assert [PLAN.scoring(job).seeds_of(index) for index in range(2)] == [(100_000,), (100_001,)]
    assert replace(PLAN, seeds=(0, 7)).scoring(job).seeds_of(1) == (100_000, 100_007)


def test_published_settings_are_all_scored_and_none_is_tuned(compare, tmp_path, generations, monkeypatch):
    published = replace(METHODS[1], name="uniform skip order 0 published", tuned=False)
    monkeypatch.setitem(DECLARED, published.name, published)
    comparison = compare([published], tmp_path)
    assert [row.setting["full_steps"] for row in comparison.rows] == [7, 5, 4]
    assert {row.method for row in comparison.rows} == {"uniform skip order 0 published"}
    assert set(generations.prompts) & set(PLAN.calibration_prompts) == {"a green ball"}  # a plain video, for the steps
