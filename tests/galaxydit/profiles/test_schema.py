import copy
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from galaxydit.errors import GalaxyDiTError
from galaxydit.policies.error_map import CumulativeDistance, Curve, ErrorMap
from galaxydit.profiles.evidence import ErrorPropagation, Evidence, Fit, RankedProxy, Seconds, Verification
from galaxydit.profiles.profile_registry import shipped_profiles
from galaxydit.profiles.recipe import Recipe, Target
from galaxydit.profiles.schema import SCHEMA_VERSION, Conditions, Model, Profile, parse_profile, read_profile

PROFILE = Profile(
    schema_version=SCHEMA_VERSION,
    name="test",
    source="a test",
    model=Model("WanTransformer3DModel", {"num_layers": 3, "patch_size": (1, 2, 2), "image_dim": None}, (0.1, -0.2)),
    conditions=Conditions(
        "UniPCMultistepScheduler",
        3,
        8.0,
        6.0,
        (16, 5, 8, 8),
        "float32",
        "cpu",
        2,
        0,
        "ab",
        {"torch": "2"},
        (1.0, 0.9, 0.5),
    ),
    recipe=Recipe(
        proxy="block_residual",
        reuse="output",
        order=1,
        error_map=ErrorMap((Curve(0.2, (0.1, 0.2), (0.1, 0.3), (0.0, 0.1)), Curve(0.9, (0.1,), (0.2,), (0.0,)))),
        cumulative_distance=CumulativeDistance((1.0, 0.9, 0.5), (0.0, 0.1, 0.3)),
        targets=(
            Target(1.5, 0.2, 4, (1.0, 0.5)),
            Target(1.75, 0.1, None, (1.0, 0.5)),
            Target(2.0, 0.1, None, (1.0, 0.5)),
        ),
    ),
    evidence=Evidence(
        reason="it ranks best",
        ranking=(RankedProxy("block_residual", 0.05, 0.9, 0.8, 0.95, 0.3, 0.1, 0.5, 0.7),),
        fit=Fit(0.5, 0.6, 0.7),
        propagation=ErrorPropagation((0.9, 0.1), (4.0, 0.5)),
        verifications=(Verification(1.5, 0.2, 0.66, 30.0), Verification(2.0)),
        seconds=Seconds(0.1, 0.01, 0.01, 0.01, (1.4, 1.9), (1.4, 1.8)),
    ),
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just(10**400),
)


def places(data: Any, path: tuple = ()) -> list[tuple]:
    """The paths of everything inside plain data."""
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = []
    for key, value in children:
        found += [(*path, key), *places(value, (*path, key))]
    return found


@st.composite
def mutations(draw: Callable) -> str:
    """A profile's text with one thing changed: a value, a key, a byte, or its end missing."""
    data = json.loads(json.dumps(PROFILE.to_dict()))
    kind = draw(st.sampled_from(["value", "value", "remove", "add", "cut", "byte"]))
    text = json.dumps(data, indent=1)
    if kind == "cut":
        return text[: draw(st.integers(0, len(text) - 2))]
    if kind == "byte":
        place = draw(st.integers(0, len(text) - 1))
        return text[:place] + draw(st.characters(codec="utf-8")) + text[place + 1 :]
    path = draw(st.sampled_from(places(data)))
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    if kind == "value":
        parent[path[-1]] = draw(scalars)
    elif kind == "remove":
        del parent[path[-1]]
    elif isinstance(parent, dict):
        parent[draw(st.text(min_size=1, max_size=8))] = draw(scalars)
    else:
        parent.append(draw(scalars))
    return json.dumps(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.json"


def test_a_saved_profile_is_read_back_equal(path: Path) -> None:
    PROFILE.save(path)
    assert read_profile(path) == PROFILE
    assert read_profile(path).evidence.seconds == PROFILE.evidence.seconds


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutations())
def test_300_mutated_files_give_a_clear_error_and_never_another_profile(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    message = ""
    try:
        profile = read_profile(path)
    except GalaxyDiTError as error:
        message = str(error)
    else:
        assert profile.to_dict() == PROFILE.to_dict()  # the same content, such as one blank for another
        return
    assert "profile" in message
    assert any(cure in message for cure in ("calibrate", "restore", "pass", "install"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 1}, r"schema_version=1 is not allowed: expected 11; calibrate again"),
        ({"schema_version": True}, "schema_version=True"),
        ({"recipe.proxy": "magic"}, "proxy='magic' is not allowed: expected one of"),
        ({"recipe.order": 3}, "order=3 is not allowed: expected 0 or 1"),
        ({"recipe.order": 2}, r"order=2 is not allowed: expected 0 or 1"),
        ({"conditions.samples": "2"}, r"profile.conditions.samples='2' is not allowed: expected a valid"),
        ({"recipe.cumulative_distance.distances": [0.0, 0.3, 0.1]}, "distances goes from 0.3 to 0.1"),
        ({"recipe.cumulative_distance.distances": [0.0, 0.1]}, "sigmas has 3 entries and distances 2"),
        ({"recipe.targets": []}, "targets is empty"),
        ({"secret": 1}, "profile.secret is not known"),
        ({"name": "another"}, "digest=.* the file was changed"),
    ],
)
def test_errors_name_the_place_the_value_and_the_cure(path: Path, change: dict, message: str) -> None:
    data = copy.deepcopy(PROFILE.to_dict())
    for place, value in change.items():
        *parents, key = place.split(".")
        parent = data
        for name in parents:
            parent = parent[name]
        parent[key] = value
    path.write_text(json.dumps(data))
    with pytest.raises(GalaxyDiTError, match=message):
        read_profile(path)


def test_a_map_that_falls_is_refused(path: Path) -> None:
    data = copy.deepcopy(PROFILE.to_dict())
    data["recipe"]["error_map"]["curves"] = [
        {"sigma": 0.5, "distances": [0.1, 0.2], "errors": [0.2, 0.1], "spread": [0, 0]}
    ]
    path.write_text(json.dumps(data))
    with pytest.raises(GalaxyDiTError, match=r"error_map.curves\[0\]: errors goes from 0.2 to 0.1"):
        read_profile(path)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"a": NaN}', "[" * 100_000, "\ud800"])
def test_what_is_no_profile_is_refused(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(GalaxyDiTError, match="profile"):
        read_profile(path)


def test_seconds_do_not_belong_to_the_identity() -> None:
    seconds = replace(PROFILE.evidence.seconds, step=9.0)
    other = replace(PROFILE, evidence=replace(PROFILE.evidence, seconds=seconds))
    assert other == PROFILE
    assert other.identity == PROFILE.identity
    assert replace(PROFILE, name="b").identity != PROFILE.identity


def test_shipped_profiles_are_read() -> None:
    assert [profile.name for profile in shipped_profiles()] == ["wan-tiny"]


def test_the_target_with_the_nearest_number_of_full_steps_is_taken_verified_or_not() -> None:
    conditions = replace(PROFILE.conditions, steps=50)
    between = [Target(50 / count, 0.1, None, (1.0, 0.5)) for count in (32, 26, 24, 23)]
    asked = [target for target in PROFILE.recipe.targets if target.speedup != 1.75]
    targets = tuple(sorted(asked + between, key=lambda target: target.speedup))
    profile = replace(PROFILE, conditions=conditions, recipe=replace(PROFILE.recipe, targets=targets))
    for speedup, expected in ((1.5, 1.5), (2.0, 2.0), (2.03, 2.0), (2.05, 50 / 24), (2.2, 50 / 23), (9.0, 50 / 23)):
        assert profile.target_for(speedup).speedup == expected


def test_a_profile_that_could_not_be_read_back_is_not_written(path: Path) -> None:
    conditions = replace(PROFILE.conditions, samples=-2)
    with pytest.raises(GalaxyDiTError, match=r"samples=-2"):
        replace(PROFILE, conditions=conditions).save(path)
    assert not path.exists()


@pytest.mark.parametrize("sigmas", [(0.5, 0.9, 1.0), (0.7, 0.7, 0.7), (0.5, 0.2, -0.1)])
def test_the_noise_levels_of_distances_fall(sigmas: tuple[float, ...]) -> None:
    with pytest.raises(GalaxyDiTError, match="sigmas"):
        CumulativeDistance(sigmas, (0.0, 0.1, 0.3))


@pytest.mark.parametrize(
    "place",
    [
        ("conditions", "sigmas"),
        ("conditions", "latent_shape"),
        ("recipe", "targets", 0, "sigmas"),
        ("recipe", "cumulative_distance", "sigmas"),
        ("recipe", "error_map", "curves", 0, "distances"),
        ("evidence", "propagation", "sigmas"),
        ("model", "weights"),
    ],
)
def test_a_list_that_planning_loops_over_has_a_bound(place: tuple[str | int, ...]) -> None:
    data = json.loads(json.dumps(PROFILE.to_dict()))
    *path, last = place
    inner = data
    for key in path:
        inner = inner[key]
    inner[last] = [round(1 - index / 1002, 7) for index in range(1001)]
    with pytest.raises(GalaxyDiTError, match=rf"{last}\)=1001 is not allowed: expected at most 1000 entries"):
        parse_profile(data)


def test_a_number_of_steps_has_a_bound() -> None:
    data = json.loads(json.dumps(PROFILE.to_dict()))
    data["conditions"]["steps"] = 1001
    with pytest.raises(GalaxyDiTError, match="steps=1001 is not allowed: expected less than or equal to 1000"):
        parse_profile(data)


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "profile.json")
    with pytest.raises(GalaxyDiTError, match=r"profile='.*' is not allowed: expected a file or a folder, not a FIFO"):
        read_profile(tmp_path / "profile.json")
