"""A measuring command goes on only with rows of the same versions, code and weights."""

import json

import pytest
import torch

from galaxydit.errors import GalaxyDiTError
from galaxydit.eval import measured_rows
from galaxydit.eval.measured_rows import CONDITIONS, bind_folder, conditions_now, resumed


def test_without_a_file_there_are_only_conditions(tiny_wan_pipeline, tmp_path):
    assert resumed(tmp_path / "rows.json", tiny_wan_pipeline) == {CONDITIONS: conditions_now(tiny_wan_pipeline)}


def test_rows_of_the_same_state_are_kept(tiny_wan_pipeline, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(resumed(path, tiny_wan_pipeline) | {"psnr": {"a": 30.0}}))
    assert resumed(path, tiny_wan_pipeline)["psnr"] == {"a": 30.0}


def test_rows_of_other_weights_code_or_versions_are_refused(tiny_wan_pipeline, tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(resumed(path, tiny_wan_pipeline)))
    with torch.no_grad():
        next(tiny_wan_pipeline.transformer.parameters()).add_(1)
    with pytest.raises(GalaxyDiTError, match="other weights; take a new --out"):
        resumed(path, tiny_wan_pipeline)
    monkeypatch.setattr(measured_rows, "code_identity", lambda: "another")
    with pytest.raises(GalaxyDiTError, match="other code and weights"):
        resumed(path, tiny_wan_pipeline)
    path.write_text("{}")
    with pytest.raises(GalaxyDiTError, match="other versions and code and weights"):
        resumed(path, tiny_wan_pipeline)


def test_a_folder_of_rows_goes_on_only_with_its_conditions(tiny_wan_pipeline, tmp_path):
    bind_folder(tmp_path / "new", tiny_wan_pipeline)
    (tmp_path / "new" / "caption-00.json").write_text("{}")
    bind_folder(tmp_path / "new", tiny_wan_pipeline)
    (tmp_path / "new" / "conditions.json").unlink()
    with pytest.raises(GalaxyDiTError, match=r"or one with conditions\.json; take a new --out"):
        bind_folder(tmp_path / "new", tiny_wan_pipeline)
