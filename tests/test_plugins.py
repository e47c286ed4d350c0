"""Methods, proxies and families of other packages and files: installed, loaded by name, refused, and remembered."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, PixArtTransformer2DModel

import galaxydit
from galaxydit import GalaxyDiTConfig, Threshold, plugins
from galaxydit.cli import main
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.methods import method as method_module
from galaxydit.eval.methods.method_registry import declared, load_method
from galaxydit.eval.methods.plugins_behind import plugins_behind
from galaxydit.families import FAMILIES
from galaxydit.pipelines.conditions import conditions_of
from galaxydit.pipelines.runs import Maker, Rank
from galaxydit.pipelines.runs.on_ray import Process
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.plugins import PROXIES_GROUP, load_plugin
from galaxydit.proxies import PROXIES

EXAMPLE = Path(galaxydit.__file__).parent / "pipelines" / "examples" / "plugin"
METHOD = """\
from galaxydit import FixedSteps
from galaxydit.eval.methods.accumulation import attached
from galaxydit.eval.methods.method import method

@method("{name}", "control", lambda steps: [{{"first": 2, "steps": steps}}])
def attach(pipe, setting, calibration):
    return attached(pipe, FixedSteps(tuple(range(0, setting["steps"], {stride}))))
"""
PROXY = """\
from galaxydit.proxies import Place, Proxy

MINE = Proxy("{name}", Place.LATENT, 0.0, "a test", lambda latent, sigma: latent.float() ** 2)
"""
JOB = """\
model = "{model}"
steps = 10
guidance = 3.0
height = 32
width = 32
frames = 5
dtype = "float32"
metrics = ["psnr"]
prompts = {{ texts = ["a red ball"] }}
variants.mine = {{ method = "my-steps", first = 2, steps = 10 }}
"""


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leaves no plugin behind."""
    modules = set(sys.modules)
    for registry in (PROXIES, FAMILIES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.setattr(method_module, "METHODS", dict(method_module.METHODS))
    for name in ("_loaded", "_groups", "_declaring"):
        monkeypatch.setattr(plugins, name, type(getattr(plugins, name))())
    yield
    for name in set(sys.modules) - modules:
        if "plugin" in name or name.startswith("galaxydit_example"):
            del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of a plugin."""

    def write(file: str, text: str, **values: Any) -> Path:
        path = tmp_path / file
        path.write_text(text.format(**values) if values else text)
        return path

    return write


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(each) for each in arguments])
        shown = capsys.readouterr()
        return int(stopped.value.code or 0), shown.out, " ".join(shown.err.split())

    return run


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip installed the example, from a copy, because a build leaves files behind."""
    source, site = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--target"]
    subprocess.run([*pip, site, source], check=True, capture_output=True)
    return site


def test_an_installed_package_adds_its_method_proxy_and_family(
    site: Path, tiny_wan_folder: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(site)
    _, listed, _ = run("compare", "--list", "--json")
    assert {"name": "every third step", "source": "control", "missing": None} in json.loads(listed)
    _, families, _ = run("families", "PixArt", "--json")
    assert [row["transformer"] for row in json.loads(families)["accepted"]] == ["PixArtTransformer2DModel"]
    code, inspected, errors = run("inspect", "--model", tiny_wan_folder, "--json")
    assert code == 0, errors
    assert "pooled_latent" in json.loads(inspected)["transformers"][0]["proxies"]


def test_a_module_may_be_installed_and_named_at_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)
    before = PROXIES["pooled_latent"]
    assert "PixArtTransformer2DModel" not in dict(FAMILIES._entries), "families are looked up later"
    plugin = load_plugin("galaxydit_example")
    assert PROXIES["pooled_latent"] is before
    assert FAMILIES.plugin_of("PixArtTransformer2DModel") == plugin
    assert "every third step" in declared()


def test_the_family_of_the_example_reuses_steps() -> None:
    load_plugin(EXAMPLE / "galaxydit_example.py")
    torch.manual_seed(0)
    sizes = {"num_attention_heads": 2, "attention_head_dim": 8, "cross_attention_dim": 16, "caption_channels": 16}
    sizes |= {"num_layers": 3, "sample_size": 8, "out_channels": 4}
    transformer = PixArtTransformer2DModel(**sizes, use_additional_conditions=False).eval()
    (description,) = galaxydit.describe(transformer)
    assert (description.family, description.blocks) == ("PixArt", 3)
    scheduler = FlowMatchEulerDiscreteScheduler()

    def denoise() -> torch.Tensor:
        scheduler.set_timesteps(12)
        generator = torch.Generator().manual_seed(0)
        latents, text = torch.randn(1, 4, 8, 8, generator=generator), torch.randn(2, 5, 16, generator=generator)
        sizes_of_images = {"resolution": None, "aspect_ratio": None}
        with torch.no_grad():
            for time in scheduler.timesteps:
                batch = torch.cat([latents] * 2)
                output = transformer(batch, text, time.expand(2), sizes_of_images, return_dict=False)[0]
                latents = scheduler.step(output.mean(0, keepdim=True), time, latents, return_dict=False)[0]
        return latents

    plain = denoise()
    for proxy, reuse in (("time_embedding", "output"), ("cross_attention", "residual"), ("feed_forward", "output")):
        config = GalaxyDiTConfig(Threshold(50.0), proxy, max_consecutive=2, reuse=reuse)
        with galaxydit.accelerate(transformer, config=config, scheduler=scheduler) as acceleration:
            assert not torch.equal(denoise(), plain)
        assert [call.step for call in acceleration.report.calls if call.reused] == [3, 4, 6, 7, 9, 10]
        assert acceleration.report.notes == ()
    assert torch.equal(denoise(), plain)


def test_a_method_of_a_file_is_compared_in_a_job_and_its_run_remembers_the_file(
    write: Any, tiny_wan_folder: Path, tmp_path: Path, run: Any
) -> None:
    plugin, job, out = write("mine.py", METHOD, name="my steps", stride=2), tmp_path / "job.toml", tmp_path / "run"
    job.write_text(JOB.format(model=tiny_wan_folder))
    code, _, errors = run("eval", "run", job, "--out", out)
    assert code == 2
    assert "method='my-steps' is no method" in errors
    assert "--plugin" in errors
    code, shown, errors = run("eval", "run", job, "--out", out, "--plugin", plugin)
    assert code == 0, errors
    assert "2 done, 0 failed" in shown
    conditions = json.loads((out / "run.json").read_text())["conditions"]
    assert conditions["variants"][1]["files"] == plugins_behind(load_method("my steps"), None)
    assert [*conditions["variants"][1]["files"]] == ["plugin mine.py"]
    plugins._loaded.clear()
    method_module.METHODS.pop("my steps")
    assert run("eval", "report", out)[0] == 0, "what is made is shown without the plugin"


def test_a_run_is_not_continued_with_another_version_of_its_plugin(write: Any, tmp_path: Path) -> None:
    from galaxydit.eval.jobs.jobfile import job_of
    from galaxydit.eval.jobs.run_job import open_run

    data = {"model": "wan-tiny", "prompts": {"texts": ["a red ball"]}}
    data["variants"] = {"mine": {"method": "my-steps", "first": 2, "steps": 10}}
    for name, stride in (("a", 2), ("b", 3)):
        (tmp_path / name).mkdir()
        path = write(f"{name}/mine.py", METHOD, name="my steps", stride=stride)
        plugins._loaded.clear()
        method_module.METHODS.pop("my steps", None)
        load_plugin(path)
        if name == "a":
            open_run(tmp_path / "run", job_of(data, tmp_path))
    with pytest.raises(GalaxyDiTError, match=r"variants\[mine\]\.files\.plugin mine\.py"):
        open_run(tmp_path / "run", job_of(data, tmp_path))


def test_the_videos_of_a_family_depend_on_the_plugin_that_has_it(tiny_wan_pipeline: Any, write: Any) -> None:
    settings = GenerationSettings(32, 32, 5, steps=2)
    assert "plugins" not in conditions_of(tiny_wan_pipeline, settings)
    wan = FAMILIES.pop("WanTransformer3DModel")
    text = "from galaxydit.families import Family\nMINE = Family('Mine', 'WanTransformer3DModel', 'separate calls')\n"
    plugin = load_plugin(write("mine.py", text))
    assert FAMILIES["WanTransformer3DModel"] is not wan
    assert conditions_of(tiny_wan_pipeline, settings)["plugins"] == {"mine.py": plugin.digest}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (METHOD.format(name="FirstBlockCache", stride=2), "'FirstBlockCache' is not allowed: expected a name that no"),
        (METHOD.format(name="fewer-steps", stride=2), "the method 'fewer steps' has it; rename the method"),
        (METHOD.format(name="baseline", stride=2), "a variant of jobs has it"),
        (PROXY.format(name="noisy_latent"), "name='noisy_latent' is not allowed: expected a name that galaxydit does"),
        (
            "from galaxydit.families import Family\nWAN = Family('Wan', 'WanTransformer3DModel', 'separate calls')",
            "class_name='WanTransformer3DModel' is not allowed: expected a name that galaxydit does not have already",
        ),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("raise SystemExit(3)", "(SystemExit: 3); mend it, or leave it out"),
        ("x = 1", "it declares no method, proxy or family"),
    ],
)
def test_an_error_of_a_plugin_names_it_and_the_cure(write: Any, text: str, problem: str) -> None:
    path = write("mine.py", text)
    for _ in range(2):  # the second time is no different
        with pytest.raises(GalaxyDiTError) as raised:
            load_plugin(path)
        assert str(raised.value).startswith("the plugin 'mine.py' cannot be loaded")
        assert problem in str(raised.value)
        assert raised.value.cure
    assert "Wan" in FAMILIES["WanTransformer3DModel"].name


@pytest.mark.parametrize(
    ("name", "expected"), [("nothing.of.this", "a module that Python finds"), ("nothing.py", "a file that is there")]
)
def test_a_plugin_that_is_not_there_is_refused(name: str, expected: str, run: Any) -> None:
    code, _, errors = run("families", "--plugin", name)
    assert code == 2
    assert f"plugin='{name}' is not allowed: expected {expected}" in errors


@pytest.mark.parametrize("names", [("a.py", "b.py"), ("b.py", "a.py")])
def test_of_two_plugins_with_one_name_the_second_is_refused_whatever_the_order(
    write: Any, names: tuple[str, str]
) -> None:
    first, second = (write(name, PROXY, name="mine") for name in names)
    load_plugin(first)
    load_plugin(first)
    with pytest.raises(GalaxyDiTError, match=f"plugin '{second.name}' .*that the plugin '{first.name}' does not have"):
        load_plugin(second)


def test_a_broken_installed_plugin_names_its_package_at_each_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("mine", "nothing_of_this_name", PROXIES_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken] if group == PROXIES_GROUP else [])
    assert "noisy_latent" in PROXIES, "a built-in name needs no plugin"
    for _ in range(2):
        with pytest.raises(GalaxyDiTError, match="pip uninstall nothing_of_this_name"):
            "mine" in PROXIES  # noqa: B015


def test_an_entry_point_that_holds_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = EntryPoint("mine", "json:dumps", PROXIES_GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [wrong])
    with pytest.raises(GalaxyDiTError, match=r"mine = json:dumps of galaxydit\.proxies holds no proxies"):
        list(PROXIES)


def test_a_worker_loads_the_plugins_of_the_driver(write: Any) -> None:
    path = write("mine.py", METHOD, name="my steps", stride=2)
    load_plugin(path)
    given = plugins.loaded_plugins()
    assert given == (str(path),)
    plugins._loaded.clear()
    method_module.METHODS.pop("my steps")

    class Loads(Maker):
        def prepare(self, rank: Rank) -> None:
            self.method = load_method("my-steps")

    Process(maker := Loads(), None, str(path.parent), given).prepare(Rank(), None)  # type: ignore[arg-type]
    assert maker.method.module in sys.modules


def test_a_registered_proxy_is_read_by_name_and_as_an_object(tiny_wan_pipeline: Any, write: Any) -> None:
    load_plugin(write("mine.py", PROXY, name="squared_latent"))
    with galaxydit.accelerate(tiny_wan_pipeline, proxy=PROXIES["squared_latent"], threshold=0.1) as acceleration:
        assert acceleration.config.proxy == "squared_latent"
    with pytest.raises(GalaxyDiTError, match=r"proxy='squared_latnet'.*did you mean 'squared_latent'"):
        galaxydit.accelerate(tiny_wan_pipeline, proxy="squared_latnet", threshold=0.1)


def test_no_method_is_lost_and_plugins_stand_among_their_kind(write: Any) -> None:
    before = [*declared()]
    load_plugin(write("mine.py", METHOD, name="my steps", stride=2))
    after = [*declared()]
    assert [name for name in after if name != "my steps"] == before
    assert declared()["my steps"].source == declared()[after[after.index("my steps") - 1]].source == "control"
