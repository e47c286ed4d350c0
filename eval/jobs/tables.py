"""Tables of a TOML file against pydantic models, with errors that name file, key, value and what is expected."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from galaxydit.errors import GalaxyDiTError

LONGEST = 80


class Table(BaseModel):
    """Keys of a table: no others are allowed, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _check_distinct(values: list[Any]) -> list[Any]:
    if len({json.dumps(value) for value in values}) < len(values):
        raise PydanticCustomError("repetition", "a value is repeated")
    return values


Text = Annotated[str, Field(pattern=r"\S")]
Number = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Texts = Annotated[list[Text], Field(min_length=1), AfterValidator(_check_distinct)]
Seeds = Annotated[list[Seed], Field(min_length=1), AfterValidator(_check_distinct)]


def check_table(place: str, data: Any, model: type[BaseModel]) -> dict[str, Any]:
    """`data`, once every key is known and every value allowed.

    place: what errors begin with, such as "job.toml: " or "job.toml: prompts.".
    """
    try:
        model.model_validate(data)
    except ValidationError as error:
        raise GalaxyDiTError(_explain(place, data, model, error)) from error
    return dict(data)


def _explain(place: str, data: Any, model: type[BaseModel], error: ValidationError) -> str:
    if not isinstance(data, dict):
        return f"{place.rstrip('.')} = {shown(data)} is not allowed: expected a table"
    schema = model.model_json_schema(by_alias=True)
    known = schema.get("properties", {})
    first = next((each for each in error.errors() if each["type"] == "extra_forbidden"), error.errors()[0])
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"{place}{key} is not known{suggestion(key, known)}; expected one of {', '.join(known)}"
    if first["type"] == "missing":
        return f"{place}{key} is missing: expected {_words(known[key])}"
    return f"{place}{key} = {shown(data[key])} is not allowed: expected {_words(known[key])}"


def _words(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = {**schema, **kinds[0]}
    if "enum" in kind:
        return f"one of {', '.join(kind['enum'])}"
    words = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "object": "a table"}
    text = words.get(kind.get("type", ""), "text that is not empty" if "pattern" in kind else "text")
    if kind.get("type") == "array":
        text = f"a list, without repetition, of {_words(kind['items'])}" if "type" in kind["items"] else "a list"
    if "exclusiveMinimum" in kind:
        text += f" above {kind['exclusiveMinimum']:g}"
    if "minimum" in kind:
        text += f" from {kind['minimum']:g}"
    if "maximum" in kind:
        text += f" to {kind['maximum']}"
    return text + "".join(f", such as {shown(example)}" for example in kind.get("examples", []))


def suggestion(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """The question whether another name was meant, or nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f": did you mean {close[0]}?" if close else ""


def shown(value: Any) -> str:
    """A value as it may stand in the file, cut where it is long."""
    words = json.dumps(value, ensure_ascii=False, default=str)
    return words if len(words) <= LONGEST else words[:LONGEST] + "..."
