"""Options that the commands which make videos share: files beside the prompt, the negative prompt, additions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import exit_code
from PIL import Image

from galaxydit.commands.grouping import grouped
from galaxydit.commands.jobs import job_keys
from galaxydit.commands.options import InputFiles, ModelOptions, RayOptions, Sizes
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs.job import Job
from galaxydit.pipelines.settings import GenerationSettings

VIDEO = ["--prompt", "a ball", "--no-accelerate", "--steps", "2"]


def test_a_home_folder_is_put_into_paths_before_a_command_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    read = []

    @grouped
    def command(*, out: str, report: Path, profile: list[Path], prompt: str, cluster: RayOptions) -> None:
        read.extend([out, report, *profile, prompt])

    options = {field: None for field in vars(RayOptions())}
    command(out="~/run", report=Path("~/page.html"), profile=[Path("~/a.json")], prompt="~ a wave", **options)
    assert read == [f"{tmp_path}/run", tmp_path / "page.html", tmp_path / "a.json", "~ a wave"]
    command(out="s3://bucket/~/run", report=Path("b~/x"), profile=[], prompt="", **options)
    assert read[4:6] == ["s3://bucket/~/run", Path("b~/x")]


def test_a_path_in_the_home_folder_of_a_user_without_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: str(path))

    @grouped
    def command(*, out: str) -> None:
        pytest.fail("a folder of the name ~ would be made")

    with pytest.raises(GalaxyDiTError, match=r"--out='~/run' is not allowed: expected a path without ~"):
        command(out="~/run")


@pytest.fixture
def image(tmp_path: Path) -> str:
    Image.new("RGB", (32, 32), "red").save(tmp_path / "red.png")
    return str(tmp_path / "red.png")


def test_files_are_added_to_each_prompt(image: str) -> None:
    given = InputFiles(image=image, reference_images=[image])
    first, second = given.added_to(["a cat", json.dumps({"prompt": "a dog", "last_image": image})])
    assert json.loads(first) == {"prompt": "a cat", "image": image, "reference_images": [image]}
    assert json.loads(second) == {"prompt": "a dog", "last_image": image, "image": image, "reference_images": [image]}
    assert InputFiles().added_to(["a cat"]) == ("a cat",)
    with pytest.raises(GalaxyDiTError, match=r"image=.* is not allowed: expected a prompt without image; name it once"):
        given.added_to([first])
    with pytest.raises(GalaxyDiTError, match=r"mask='nowhere.mp4' is not allowed: expected a file"):
        InputFiles(mask="nowhere.mp4").added_to(["a cat"])


def test_an_image_for_a_pipeline_that_takes_none_is_refused_by_its_name(
    tiny_wan_folder: Path, image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.mp4"
    assert exit_code("generate", "--model", tiny_wan_folder, *VIDEO, "--out", out, "--image", image) == 2
    assert "error: WanPipeline does not take image" in capsys.readouterr().err
    assert not out.exists()


def test_the_negative_prompt_of_the_recipe_is_said_and_another_replaces_it(
    tiny_wan_folder: Path,
    tiny_settings: GenerationSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = replace(tiny_settings, negative_prompt="a red square")
    monkeypatch.setattr("galaxydit.pipelines.published_models.recommended_settings", lambda pipe: recipe)
    videos = []
    for options in ([], ["--negative-prompt", "a red square"], ["--negative-prompt", ""]):
        out = tmp_path / f"{len(videos)}.mp4"
        assert exit_code("generate", "--model", tiny_wan_folder, *VIDEO, *options, "--out", out) == 0
        said = "negative prompt of the model's authors (--negative-prompt changes it): a red square"
        assert (said in capsys.readouterr().err) == (not options)
        videos.append(out.read_bytes())
    assert videos[0] == videos[1] != videos[2]


def test_units_of_a_job_keep_their_ids_without_additions_and_have_others_with_them() -> None:
    job = Job(model="wan-tiny", prompts=("a ball",))
    data = job.units()[0].data
    assert not data.keys() & {"base", "lora", "compile", "attention"}
    added = replace(job, lora="style.safetensors", compile=True).units()[0].data
    assert added == data | {"lora": "style.safetensors", "compile": True}


def test_jobs_of_a_published_model_say_the_negative_prompt_of_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    source = ModelOptions("wan2.1-t2v-1.3b")
    assert "negative_prompt" not in job_keys(source, Sizes())
    assert "negative prompt of the model's authors" in capsys.readouterr().err
    assert job_keys(source, Sizes(negative_prompt=""))["negative_prompt"] == ""
    assert not capsys.readouterr().err
