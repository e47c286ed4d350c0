import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from galaxydit.calibration.prompt_files import WAN_TINY_PROMPTS, read_lines
from galaxydit.errors import GalaxyDiTError
from galaxydit.eval.jobs import jobfile
from galaxydit.eval.jobs.job import OWN, Job, Variant, options_of
from galaxydit.eval.jobs.jobfile import read_job
from galaxydit.eval.jobs.run_job import load_run, open_run
from galaxydit.eval.methods.method_registry import declared, is_installed, load_method, slug_of
from galaxydit.eval.published.vbench import vbench_prompts
from galaxydit.files import DIGEST
from galaxydit.pipelines.runs import Unit
from galaxydit.pipelines.wan_tiny.world import draw_prompts
from galaxydit.profiles.profile_registry import FOLDER
from galaxydit.validation import parse

SMALLEST = 'model = "wan-tiny"\n[prompts]\ntexts = ["a cat", "a dog"]\n'
EXAMPLE = Path(jobfile.__file__).with_name("example.toml")


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def of(unit: Unit, *names: str) -> tuple[Any, ...]:
    """What a unit's data has under these names; of its variant the name."""
    return tuple(unit.data[name]["name"] if name == "variant" else unit.data[name] for name in names)


def with_top(line: str) -> str:
    return f"{line}\n{SMALLEST}"


def test_the_example_is_a_job():
    job = read_job(EXAMPLE)
    assert job.settings == {"steps": 50, "guidance_scale": 5.0, "height": 64, "width": 64}
    assert job.prompts == tuple(draw_prompts(4, 0))
    assert [variant.name for variant in job.variants] == ["baseline", "galaxydit", "faster", "half-the-steps"]
    assert job.variants[2] == Variant("faster", "galaxydit", {"speedup": 3.0})
    assert len(job.units()) == 16


def test_the_protocol_has_prompts_by_hash_apart_from_those_of_calibrations_and_gates_on_the_plugin():
    protocol = EXAMPLE.with_name("protocol.toml")
    job = read_job(protocol)
    assert len(job.prompts) == 16
    assert not set(job.prompts) & set(read_lines(WAN_TINY_PROMPTS))
    assert hashlib.sha256("\n".join(job.prompts).encode()).hexdigest() in protocol.read_text()
    assert job.gates.variants == ("galaxydit",)
    assert {"psnr", "worst_psnr", "ssim"} <= set(job.gates.min)


def test_the_smallest_job_is_the_baseline_alone(tmp_path: Path):
    job = read_job(write(tmp_path, SMALLEST))
    assert [of(unit, "prompt", "seed", "variant") for unit in job.units()] == [
        ("a cat", 0, "baseline"),
        ("a dog", 1, "baseline"),
    ]


def test_offloading_changes_where_weights_lie_and_no_unit(tmp_path: Path):
    job, plain = read_job(write(tmp_path, with_top('offload = "model"'))), read_job(write(tmp_path, SMALLEST))
    assert (job.offload, plain.offload) == ("model", "none")
    assert job.units() == plain.units()


def test_samples_start_from_noise_of_their_own_and_seeds_are_shared_by_all_prompts(tmp_path: Path):
    job = read_job(write(tmp_path, with_top("samples = 2\nseed = 10")))
    assert [of(unit, "prompt_index", "sample", "seed") for unit in job.units()] == [
        (0, 0, 10),
        (0, 1, 11),
        (1, 0, 12),
        (1, 1, 13),
    ]
    job = read_job(write(tmp_path, with_top("seeds = [5, 3]")))
    assert [unit.data["seed"] for unit in job.units()] == [5, 3, 5, 3]
    assert len({unit.id for unit in job.units()}) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = = 3\n", r"is not TOML: .*line 1"),
        ("x = " + "[" * 5000, "is not TOML"),
        ("[prompts]\ntexts = ['a']", "model is missing; see `galaxydit eval run --example`"),
        ('model = "wan-tiny"', "prompts is missing"),
        (with_top("step = 5"), r"step is not known: expected one of model, .*did you mean 'steps'\?"),
        (with_top("xyz = 5"), r"xyz is not known: expected one of model, .*, steps, guidance"),
        (with_top("steps = 0"), "steps=0 is not allowed: expected greater than or equal to 1"),
        (with_top("steps = true"), "steps=True is not allowed: expected a valid integer"),
        (with_top("guidance = nan"), "guidance=nan is not allowed: expected a finite number"),
        (with_top('dtype = "fp16"'), "dtype='fp16' is not allowed: expected 'float32', 'bfloat16' or 'float16'"),
        (with_top("height = 33"), 'height=33 is not allowed: expected an even number; take one, or video = "lossless"'),
        (with_top("seeds = [1, 1]"), "seeds: expected a list without repetition, but it has 1 twice"),
        (with_top("seeds = []"), r"seeds=\[\] is not allowed: .*at least 1 item"),
        (with_top("seeds = [1]\nseed = 2"), "seeds is given together with samples or seed; leave one of them out"),
        (
            with_top("seed = 18446744073709551616"),
            "seed=18446744073709551616 is not allowed: .* to 9223372036854775807",
        ),
        (with_top('metrics = ["psrn"]'), r"metrics='psrn' is not allowed: expected one of psnr, .*did you mean 'psnr'"),
        ('prompts = 3\nmodel = "a"', "prompts=3 is not allowed: expected a"),
        (SMALLEST + 'suite = "wan-tiny"', "prompts has texts and suite: expected one of file, texts, suite"),
        (SMALLEST.replace("texts", "file"), r"prompts\.file=.* is not allowed: expected a valid string"),
        (SMALLEST + "count = 3", r"prompts\.count=3 is not allowed: expected at most 2, the number of prompts"),
        (SMALLEST + "seed = 3", r"prompts\.seed=3 has no effect with texts; leave it out"),
        (SMALLEST.replace("wan-tiny", "wan-tinny"), r"model='wan-tinny' is not allowed: .*did you mean 'wan-tiny'"),
        (SMALLEST.replace("texts", "suite = 'wan-tiny'\ncount = 1000000000 #"), "count=1000000000 .* equal to 10000"),
        (SMALLEST.replace("texts", "suite = 'wan-tiny' #"), r"prompts\.count is missing: expected a whole number"),
        (with_top("steps = 10001"), "steps=10001 is not allowed: expected less than or equal to 10000"),
        (with_top("frames = 1000000"), "frames=1000000 is not allowed: expected less than or equal to 100000"),
        (with_top("height = 100000"), "height=100000 is not allowed: expected less than or equal to 16384"),
        (with_top("width = 16386"), "width=16386 is not allowed: expected less than or equal to 16384"),
        (
            SMALLEST + "[variants.fewer-steps]\nsteps = 1000000000000",
            r"steps=1000000000000 is not allowed: expected less than or equal to 10000",
        ),
        (with_top("samples = 1000000000"), "videos=2000000000 is not allowed: expected at most 1000000"),
        (SMALLEST + "[variants.baseline]", r"variants\.baseline is made unless baseline = false; leave"),
        (SMALLEST + '[variants."a/b"]', r'variants\."a/b" is the name of files: expected up to 40 small letters'),
        (SMALLEST + "[variants]\nfast = 3", r"variants\.fast=3 is not allowed"),
        (SMALLEST + "[variants.fast]", r"fast\.method is missing, and 'fast' is no method"),
        (
            SMALLEST + '[variants.a]\nmethod = "galaxidit"',
            "method='galaxidit' is no method; .*did you mean 'galaxydit'",
        ),
        (SMALLEST + "[variants.galaxydit]\nspeedup = 0.5", r"galaxydit\.speedup=0\.5 is not allowed: .* at least 1;"),
        (SMALLEST + "[variants.galaxydit]\nspedup = 2", r"galaxydit\.spedup is not known: .*did you mean 'speedup'\?"),
        (SMALLEST + "[variants.galaxydit]\nspeedup = 2\nthreshold = 0.1", "threshold is given together with speedup"),
        (
            SMALLEST + '[variants.galaxydit]\nquality = "best"',
            r"galaxydit\.quality='best' is not allowed: .*'lossless'",
        ),
        (SMALLEST + '[variants.galaxydit]\nquality = "fast"\nmin_psnr = 30', "min_psnr is given together with quality"),
        (SMALLEST + '[variants.galaxydit]\nprofile = "none"', r"galaxydit\.profile='none' .* a file, or one"),
        (SMALLEST + "[variants.fewer-steps]", r"fewer-steps\.steps is missing"),
        (with_top("steps = 9") + "[variants.fewer-steps]\nsteps = 10", r"steps=10 is not allowed: expected at most"),
        (SMALLEST + '[calibration]\ntexts = ["x"]', "calibration has no effect, since no variant measures anything"),
        (
            with_top("baseline = false"),
            "variants is missing, and baseline=False leaves no video to make; add a",
        ),
        (
            with_top('baseline = false\nmetrics = ["psnr"]') + "[variants.galaxydit]",
            r"metrics='psnr' is not allowed: expected metrics without a reference, .*; leave it out, or set baseline",
        ),
        (with_top("metrics = []"), r"metrics=\[\] is not allowed: .*; name metrics, or set baseline = false"),
        (SMALLEST + f'sha256 = "{"0" * 64}"', r"prompts\.sha256='0+' is not allowed: expected f658c42a"),
        (
            SMALLEST.replace("a dog", "[prompts]") + 'apart_from = "job.toml"',
            r"prompts has '\[prompts\]', which is also in prompts\.apart_from; take others",
        ),
        (
            with_top('metrics = ["ssim"]') + "[gates.min]\nworst_psnr = 30",
            r"gates\.min='worst_psnr' is not allowed: expected a metric that the job measures \(ssim\); add \"psnr\"",
        ),
        (
            with_top("baseline = false") + "[gates.max]\npsnr = 30\n[variants.galaxydit]",
            r"gates\.max='psnr' is not allowed: expected a metric without a reference",
        ),
        (
            with_top("baseline = false") + "[gates.min]\ndenoise_speedup = 2\n[variants.galaxydit]",
            r"gates\.min='denoise_speedup' is not allowed: expected a figure without a reference",
        ),
        (SMALLEST + '[gates]\nvariants = ["baseline"]', r"gates\.variants='baseline' is not allowed"),
        (SMALLEST + 'sha256 = "0"', r"prompts\.sha256='0' is not allowed"),
        (SMALLEST + "[gates.min]\npsrn = 30", r"gate='psrn' is not allowed: expected .*; .*did you mean 'psnr'\?"),
        (SMALLEST + '[gates.min]\npsnr = "x"', r"gates\.min\.psnr='x' is not allowed: expected a valid number"),
    ],
)
def test_an_error_names_file_key_value_and_what_is_allowed(tmp_path: Path, text: str, message: str):
    path = write(tmp_path, text)
    with pytest.raises(GalaxyDiTError, match=message) as raised:
        read_job(path)
    assert str(raised.value).startswith(str(path))


def test_a_count_takes_the_first_prompts(tmp_path: Path):
    assert read_job(write(tmp_path, SMALLEST + "count = 1")).prompts == read_job(write(tmp_path, SMALLEST)).prompts[:1]


def test_prompts_of_a_file_are_its_lines_that_are_not_blank(tmp_path: Path):
    prompts = ["<script>alert(1)</script>", "../../etc/passwd", "🐈 " + "x" * 300, "a\u2028b", 'a "quoted" cat']
    (tmp_path / "prompts.txt").write_text("\ufeff" + "\r\n\n".join(prompts), encoding="utf-8")
    job = read_job(write(tmp_path, 'model = "wan-tiny"\n[prompts]\nfile = "prompts.txt"'))
    assert job.prompts == tuple(prompts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n\n", r"prompts\.file=\[\] is not allowed: .* at least 1 item .*; write different ones, one a line"),
        (
            b"a cat\n\na cat\n",
            r"prompts\.file: expected a list without repetition, but it has 'a cat' twice; write different",
        ),
        (b"\xff\xfe", r"prompts\.file=.* is not allowed: expected text in UTF-8"),
    ],
)
def test_bad_prompt_files_are_refused(tmp_path: Path, content: bytes, message: str):
    (tmp_path / "prompts.txt").write_bytes(content)
    with pytest.raises(GalaxyDiTError, match=message):
        read_job(write(tmp_path, 'model = "wan-tiny"\n[prompts]\nfile = "prompts.txt"'))


def test_missing_files_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"no\.toml is no file"):
        read_job(tmp_path / "no.toml")
    with pytest.raises(GalaxyDiTError, match=r"\.toml: prompts\.file='.*no\.txt' is not allowed: expected a text file"):
        read_job(write(tmp_path, 'model = "wan-tiny"\n[prompts]\nfile = "no.txt"'))


def install(folder: Path, package: str, file: str, entries: object) -> None:
    """A package that cannot be imported, with its files as pip lists them."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text("raise RuntimeError('it must not be imported')")
    (folder / package / file).write_text(json.dumps(entries))
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n{package}/{file},,\n")


ENTRIES = [
    {"prompt_en": "a cat", "dimension": ["color"]},
    {"prompt_en": "a dog", "dimension": ["scene", "color"]},
    {"prompt_en": "a cat", "dimension": ["scene"]},
]


def test_vbench_is_read_from_the_installed_package_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(tmp_path, "vbench", "VBench_full_info.json", ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)
    assert vbench_prompts() == ("a cat", "a dog")
    assert vbench_prompts(count=1) == ("a cat",)
    assert vbench_prompts(dimensions=["scene"]) == ("a dog", "a cat")
    text = 'model = "wan-tiny"\n[prompts]\nsuite = "vbench"\ndimensions = ["sense"]'
    with pytest.raises(
        GalaxyDiTError, match=r"job.toml: prompts\.dimensions has 'sense': expected some of color, scene"
    ):
        read_job(write(tmp_path, text))
    with pytest.raises(GalaxyDiTError, match="count=3 is not allowed: expected at most the 2 prompts"):
        vbench_prompts(count=3)


def test_a_suite_whose_package_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(GalaxyDiTError, match="pip install --no-deps vbench"):
        vbench_prompts()


def test_ids_of_units_follow_what_results_depend_on_and_nothing_else(tmp_path: Path):
    def ids(text: str) -> set[str]:
        return {unit.id for unit in read_job(write(tmp_path, text)).units()}

    assert ids(SMALLEST) == ids("# a remark\n" + SMALLEST)
    assert len(ids(SMALLEST) & ids(SMALLEST.replace("a dog", "a fox"))) == 1
    assert not ids(SMALLEST) & ids(with_top("steps = 20"))


def test_ids_follow_the_content_of_a_profile(tmp_path: Path):
    shipped = FOLDER / "wan-tiny.json"
    path = write(tmp_path, SMALLEST + '[variants.galaxydit]\nprofile = "p.json"')
    (tmp_path / "p.json").write_text(shipped.read_text())
    before = read_job(path).units()
    (tmp_path / "p.json").write_text(shipped.read_text() + "\n")
    after = read_job(path).units()
    assert [old.id == new.id for old, new in zip(before, after, strict=True)] == [True, False, True, False]


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path):
    assert read_job(write(tmp_path, "\ufeff" + SMALLEST)).prompts == ("a cat", "a dog")


def test_a_change_of_what_finished_units_depend_on_is_refused_by_name(tmp_path: Path):
    root = tmp_path / "run"
    job = read_job(write(tmp_path, SMALLEST + "[variants.galaxydit]\nspeedup = 2"))
    open_run(root, job)
    open_run(root, job)
    assert load_run(root)[1] == job
    changed = read_job(
        write(tmp_path, "steps = 20\n" + SMALLEST.replace("dog", "fox") + "[variants.galaxydit]\nspeedup = 3")
    )
    with pytest.raises(GalaxyDiTError, match="belongs to another job") as raised:
        open_run(root, changed)
    for line in (
        "steps: None -> 20",
        "variants[galaxydit].options.speedup: 2.0 -> 3.0",
    ):
        assert line in str(raised.value)


def grow(tmp_path: Path, *texts: str) -> Job:
    """The job of a run to which job files with these texts were given, one after the other."""
    for text in texts:
        open_run(tmp_path / "run", read_job(write(tmp_path, text)))
    return load_run(tmp_path / "run")[1]


def test_a_run_takes_new_variants_prompts_and_seeds_and_its_units_stay(tmp_path: Path):
    seeds = with_top("seeds = [5, 3]")
    first = read_job(write(tmp_path, seeds + "[variants.galaxydit]"))
    other = with_top("seeds = [3, 4]").replace("a cat", "a fox") + "[variants.fewer-steps]\nsteps = 5"
    job = grow(tmp_path, seeds + "[variants.galaxydit]", other)
    assert job.prompts == ("a cat", "a dog", "a fox")
    assert job.seeds == (5, 3, 4)
    assert [variant.name for variant in job.variants] == ["baseline", "galaxydit", "fewer-steps"]
    assert len(job.units()) == 27
    assert {unit.id for unit in first.units()} <= {unit.id for unit in job.units()}
    assert grow(tmp_path, other) == job, "the same file a second time adds nothing"


def test_new_prompts_get_seeds_that_no_other_prompt_has(tmp_path: Path):
    job = grow(tmp_path, with_top("samples = 2"), with_top("samples = 2").replace("a cat", "a fox"))
    assert [(unit.data["prompt"], unit.data["seed"]) for unit in job.units()] == [
        *(("a cat", seed) for seed in (0, 1)),
        *(("a dog", seed) for seed in (2, 3)),
        *(("a fox", seed) for seed in (4, 5)),
    ]


@pytest.mark.parametrize(
    ("line", "change"),
    [("samples = 2", "samples: 1 -> 2"), ("seeds = [0]", r"seeds\[0\]: not there -> 0"), ("fps = 8", "fps: None -> 8")],
)
def test_other_changes_are_refused_and_leave_the_run_as_it_is(tmp_path: Path, line: str, change: str):
    job = grow(tmp_path, SMALLEST)
    with pytest.raises(GalaxyDiTError, match=change):
        grow(tmp_path, with_top(line) + "[variants.galaxydit]")
    assert load_run(tmp_path / "run")[1] == job


def test_a_baseline_cannot_be_added_because_finished_videos_were_not_compared_with_it(tmp_path: Path):
    grow(tmp_path, with_top("baseline = false") + "[variants.galaxydit]")
    with pytest.raises(GalaxyDiTError, match=r"Changed: .*baseline: False -> True"):
        grow(tmp_path, SMALLEST + "[variants.galaxydit]")


def test_a_run_of_a_version_without_these_keys_goes_on(tmp_path: Path):
    job = grow(tmp_path, SMALLEST)
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    for key in ("baseline", "gates"):
        del header["conditions"][key]
    del header["digest"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(header))
    assert load_run(tmp_path / "run")[1] == job
    assert grow(tmp_path, SMALLEST) == job


def test_a_job_without_baseline_may_measure_nothing(tmp_path: Path):
    job = read_job(write(tmp_path, with_top("baseline = false\nmetrics = []") + "[variants.galaxydit]"))
    assert job.metrics == ()
    open_run(tmp_path / "run", job)
    assert load_run(tmp_path / "run")[1] == job


def test_gates_may_change_at_any_time(tmp_path: Path):
    job = grow(tmp_path, SMALLEST + "[gates.min]\npsnr = 30", SMALLEST + "[gates.min]\npsnr = 31")
    assert job.gates.min == {"psnr": 31.0}


def test_a_job_without_baseline_makes_its_variants_alone(tmp_path: Path):
    job = read_job(write(tmp_path, with_top("baseline = false") + "[variants.galaxydit]"))
    assert [of(unit, "prompt", "variant") for unit in job.units()] == [("a cat", "galaxydit"), ("a dog", "galaxydit")]
    with_baseline = read_job(write(tmp_path, SMALLEST + "[variants.galaxydit]"))
    assert not {unit.id for unit in job.units()} & {unit.id for unit in with_baseline.units()}, "they lack metrics"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "kind": "job", "conditions": {"model": 3}}']
)
def test_a_damaged_run_json_is_refused_with_its_name(tmp_path: Path, text: str):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(GalaxyDiTError, match=r"run\.json"):
        load_run(tmp_path)


def test_a_run_json_without_conditions_is_damaged(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"format": 2, "kind": "job", "conditions": []}')
    with pytest.raises(GalaxyDiTError, match=r"run\.json is damaged \(no conditions\)"):
        load_run(tmp_path)


def test_a_run_of_an_earlier_version_is_refused_with_the_cure(tmp_path: Path):
    (tmp_path / "job.json").write_text('{"version": 1}')
    with pytest.raises(GalaxyDiTError, match="make runs of earlier versions again in a new folder"):
        load_run(tmp_path)
    with pytest.raises(GalaxyDiTError, match="neither empty nor a run of this version"):
        open_run(tmp_path, read_job(EXAMPLE))


def test_methods_of_the_arena_are_variants_with_options_of_their_own(tmp_path: Path):
    job = read_job(
        write(tmp_path, SMALLEST + '[variants.even]\nmethod = "uniform-skip-order-0"\nsteps=50\nfull_steps=25')
    )
    assert job.variants[1].options == {"steps": 50, "full_steps": 25}
    with pytest.raises(GalaxyDiTError, match=r"full_step is not known: .*did you mean 'full_steps'"):
        read_job(write(tmp_path, SMALLEST + "[variants.uniform-skip-order-0]\nsteps=50\nfull_step=25"))


@pytest.mark.parametrize("name", [slug_of(name) for name in declared() if slug_of(name) not in OWN])
def test_every_candidate_setting_of_a_method_is_allowed_in_a_job_file(name: str):
    method = load_method(name)
    if not is_installed(method.needs):
        pytest.skip(f"needs {method.needs}")
    for setting in method.settings(50):
        parse(options_of(name), json.loads(json.dumps(setting)), name)


def test_methods_that_calibrate_need_other_prompts_than_those_of_the_job(tmp_path: Path):
    variant = "[variants.searched-schedule]\nfull_steps = 5\n"
    with pytest.raises(GalaxyDiTError, match=r"calibration is missing: variants\.searched-schedule measures"):
        read_job(write(tmp_path, SMALLEST + variant))
    with pytest.raises(GalaxyDiTError, match="calibration has 'a dog', which is also in prompts"):
        read_job(write(tmp_path, SMALLEST + variant + '[calibration]\ntexts = ["a dog"]'))
    job = read_job(write(tmp_path, SMALLEST + variant + '[calibration]\ntexts = ["a fox"]'))
    assert job.calibration == ("a fox",)


def test_a_number_counts_however_it_is_written(tmp_path: Path):
    jobs = [
        read_job(write(tmp_path, f"{SMALLEST}[variants.galaxydit]\nspeedup = {number}\n")) for number in ("2", "2.0")
    ]
    assert [unit.id for unit in jobs[0].units()] == [unit.id for unit in jobs[1].units()]


def test_an_output_folder_with_the_name_of_a_model_is_not_taken_for_it(tmp_path: Path):
    (tmp_path / "wan-tiny" / "units").mkdir(parents=True)
    assert read_job(write(tmp_path, SMALLEST)).model == "wan-tiny"


@pytest.mark.parametrize("name", ["model", "revision", "base", "lora"])
def test_a_job_names_no_secret_because_records_keep_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    keys = {"model": "wan-tiny", name: "https://user:SECRET@host/x.safetensors"}
    lines = "\n".join(f'{key} = "{value}"' for key, value in keys.items())
    path.write_text(f'{lines}\n[prompts]\ntexts = ["a ball"]\n')
    with pytest.raises(GalaxyDiTError, match=r"without a key, a password or a token") as refused:
        read_job(path)
    assert "SECRET" not in str(refused.value)


def test_a_run_that_asks_for_endless_work_is_refused_with_the_bound(tmp_path: Path) -> None:
    open_run(tmp_path / "run", read_job(write(tmp_path, SMALLEST)))
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    for name, value, bound in (("samples", 10**12, "1000000"), ("steps", 10**9, "10000"), ("frames", 10**9, "100000")):
        edited = content | {"conditions": content["conditions"] | {name: value}}
        edited.pop(DIGEST)  # as runs of earlier versions have none
        path.write_text(json.dumps(edited))
        with pytest.raises(GalaxyDiTError, match=bound):
            load_run(tmp_path / "run")


def test_a_number_of_a_compared_method_is_bounded(tmp_path: Path) -> None:
    text = SMALLEST + "[variants.plain-at-scheduled-levels]\nspeedup = 2.0\nof = 1000000000000"
    with pytest.raises(GalaxyDiTError, match=r"levels\.of=1000000000000 is not allowed: .* at most 10000"):
        read_job(write(tmp_path, text))
