import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from accelerate import PartialState
from diffusers import WanPipeline

import galaxydit
from galaxydit.calibration import Calibration, calibrate
from galaxydit.calibration.store import Store, work_through
from galaxydit.errors import GalaxyDiTError
from galaxydit.pipelines.generate import generate
from galaxydit.pipelines.settings import GenerationSettings
from galaxydit.profiles.registry import load_profile

SCRIPT = """
    import sys
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from galaxydit.calibration import calibrate
    from galaxydit.pipelines.loading import load_pipeline
    from galaxydit.pipelines.settings import GenerationSettings
    pipe = load_pipeline(sys.argv[1], device="cpu", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    result = calibrate(pipe, sys.argv[4:], resume_dir=Path(sys.argv[2]), samples=3, verified_prompts=1,
        settings=GenerationSettings(32, 32, 5, steps=12, guidance_scale=3.0), speedups=(1.5, 2.0), name="tiny",
        progress=lambda *stage: print(*stage, flush=True))
    result.profile.save(sys.argv[3])
"""


def test_the_profile_holds_what_was_asked_for_and_meets_it(calibration: Calibration) -> None:
    profile = calibration.profile
    assert [target.speedup for target in profile.evidence.verifications] == [1.5, 2.0]
    for target in profile.evidence.verifications:
        assert target.compute_fraction is not None
        assert abs(target.compute_fraction * target.speedup - 1) < 0.06  # 12 steps: one step is 8 %
        assert target.psnr_db > 20
    assert profile.conditions.steps == 12
    assert profile.conditions.samples == 3
    assert len(profile.evidence.ranking) == 10
    assert {row.prompt for row in calibration.verifications}.isdisjoint(r.prompt for r in calibration.recordings)
    seconds = profile.evidence.seconds
    assert seconds is not None
    assert len(seconds.predicted_speedup) == len(seconds.measured_speedup) == 2


def test_accelerate_follows_a_measured_profile(
    calibration: Calibration, tiny_wan_pipeline: WanPipeline, settings: GenerationSettings, tmp_path: Path
) -> None:
    calibration.profile.save(tmp_path / "tiny.json")
    with galaxydit.accelerate(tiny_wan_pipeline, speedup=2.0, profile=tmp_path / "tiny.json") as acceleration:
        generate(tiny_wan_pipeline, "a cyan triangle grows over a dotted background", settings, 77)
    assert acceleration.report.compute_fraction == pytest.approx(0.5, rel=0.06)
    computed = sorted({call.step for call in acceleration.report.calls if not call.reused})
    sigmas = calibration.profile.conditions.sigmas
    assert tuple(sigmas[step] for step in computed) == calibration.profile.target_for(2.0).sigmas
    assert acceleration.report.notes == ()
    assert acceleration.report.config.proxy == calibration.profile.recipe.proxy


def test_twice_the_same_gives_the_same_profile(
    calibration: Calibration,
    tiny_wan_pipeline: WanPipeline,
    prompts: list[str],
    settings: GenerationSettings,
    tmp_path: Path,
) -> None:
    again = calibrate(
        tiny_wan_pipeline,
        prompts,
        resume_dir=tmp_path / "again",
        samples=3,
        settings=settings,
        verified_prompts=1,
        speedups=(1.5, 2.0),
        name="tiny",
    )
    assert again.profile == calibration.profile
    assert again.profile.identity == calibration.profile.identity


def test_a_killed_calibration_goes_on_and_gives_the_identical_profile(
    calibration: Calibration, tiny_wan_folder: Path, prompts: list[str], tmp_path: Path
) -> None:
    calibration.profile.save(tmp_path / "whole.json")
    script, parts, out = tmp_path / "run.py", tmp_path / "killed", tmp_path / "killed.json"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(tiny_wan_folder), str(parts), str(out), *prompts]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for landmark in ("recording 2 3", "verifying 0 1"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for line in process.stdout:
            if line.startswith(landmark):
                time.sleep(0.2)  # in the middle of the next piece
                process.send_signal(signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
        assert not out.exists()
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "recording 0 3" in finished.stdout
    assert load_profile(out) == load_profile(tmp_path / "whole.json")


def test_the_split_over_processes_does_not_show(tmp_path: Path) -> None:
    def state(index: int, count: int) -> PartialState:
        class Rank:
            process_index, num_processes = index, count

            def wait_for_everyone(self) -> None:
                pass

        return Rank()

    jobs, ran = [f"job-{index}" for index in range(5)], []
    store = Store(tmp_path / "two", {})
    for rank in (1, 0):
        try:
            results = work_through(store, jobs, lambda i: ran.append(i) or i * i, state(rank, 2), lambda *_: None)
        except OSError:
            assert rank == 1  # the other one's are not there yet: a real rank waits for them
    assert results == [0, 1, 4, 9, 16]
    assert sorted(ran) == [0, 1, 2, 3, 4]
    alone = work_through(Store(tmp_path / "one", {}), jobs, lambda i: i * i, state(0, 1), lambda *_: None)
    assert results == alone


def test_two_processes_give_the_profile_of_one(
    calibration: Calibration, tiny_wan_folder: Path, prompts: list[str], tmp_path: Path
) -> None:
    script, out = tmp_path / "run.py", tmp_path / "two.json"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", str(script)]
    subprocess.run(
        [*command, str(tiny_wan_folder), str(tmp_path / "two"), str(out), *prompts],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    assert load_profile(out) == calibration.profile


def test_damaged_and_foreign_pieces_are_made_anew(tmp_path: Path) -> None:
    store = Store(tmp_path, {"seed": 0})
    store.put("sample-0000", {"a": 1.5})
    assert Store(tmp_path, {"seed": 0}).get("sample-0000") == {"a": 1.5}
    assert Store(tmp_path, {"seed": 1}).get("sample-0000") is None
    (tmp_path / "sample-0000.json").write_text('{"key": "')
    assert store.get("sample-0000") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 1}, "samples=1"),
        ({"verified_prompts": 3}, "prompts holds 4"),
        ({"settings": GenerationSettings(32, 32, 5, steps=4)}, "steps=4"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_at_once(
    tiny_wan_pipeline: WanPipeline, prompts: list[str], tmp_path: Path, options: dict, message: str
) -> None:
    with pytest.raises(GalaxyDiTError, match=message):
        calibrate(tiny_wan_pipeline, prompts, resume_dir=tmp_path, **options)
