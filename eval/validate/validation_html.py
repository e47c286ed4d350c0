"""The results of a validation as an HTML page in the design of all pages."""

from shlex import quote
from typing import Any

from galaxydit.calibration.bootstrap import FEWEST_PROMPTS
from galaxydit.eval.counted import counted
from galaxydit.eval.validate.validation_tables import (
    conditions_table,
    differences_table,
    disturbed_lines,
    failed_units,
    runs_table,
    sentences_of,
)
from galaxydit.foreign_text import one_line
from galaxydit.pipelines.page_design import Brief, render_page

AT_2X, HALF = "galaxydit-2x", "half-the-steps"
TEMPLATE = """\
{% extends "base.html" %}
{% block main %}
<h2>Runs</h2>{{ box(runs, "runs") }}
{% if differences.rows %}<h2>Differences</h2>{{ box(differences, "differences of PSNR") }}{% endif %}
{% for sentence in sentences %}<p>{{ coded(sentence) }}</p>{% endfor %}
{% if failed %}<h2>Failed</h2><ul>{% for line in failed %}<li>{{ line }}</li>{% endfor %}</ul>{% endif %}
<h2>Conditions</h2>{{ box(conditions, "conditions") }}
<p>The videos are in <a href="report.html">report.html</a>; <code>validation.md</code> is this page for an issue.</p>
{% endblock %}
"""


def html(data: dict[str, Any]) -> str:
    """The page of the data of `validation_page.validation_data`."""
    notes = disturbed_lines(data)
    return render_page(
        TEMPLATE,
        f"Validation of {one_line(data['conditions']['model']['name'])}",
        _brief(data),
        notes=notes,
        conditions=conditions_table(data),
        runs=runs_table(data),
        differences=differences_table(data),
        sentences=[each for each in sentences_of(data) if each not in notes],
        failed=failed_units(data),
    )


def _brief(data: dict[str, Any]) -> Brief:
    conditions = data["conditions"]
    prompts = len({video["prompt"] for video in data["videos"]})
    done, failed = (sum(row[name] for row in data["runs"]) for name in ("done", "failed"))
    run = f"galaxydit validate made {counted(done, 'video')} of {counted(prompts, 'prompt')} on {conditions['device']}"
    run += f"; {failed} failed" if failed else ""
    command = f"galaxydit calibrate --model {quote(conditions['model']['name'])} --out profile.json"
    return Brief(f"{run}.", _meaning(data), "measure a profile of this model", command)


def _meaning(data: dict[str, Any]) -> str:
    """PSNR of the plugin at 2x, and its difference from half of the steps, which cost as much."""
    figures: dict[str, Any] = next((row["figures"] for row in data["runs"] if row["run"] == AT_2X), {})
    if "psnr" not in figures:
        return "No video of the plugin at 2x is compared with a plain one yet."
    first = f"With speedup=2 the videos have a PSNR of {figures['psnr']['mean']:.1f} dB against the plain ones"
    against = next((each for each in data["differences"] if each["minus"] == HALF), None)
    if against is None:
        return f"{first}."
    ahead = f"{first}, {against['psnr']:+.1f} dB compared with half of the steps"
    if against["low"] is None or against["high"] is None:
        return f"{ahead}; an interval needs {FEWEST_PROMPTS} prompts."
    return f"{ahead} (95 % interval {against['low']:+.1f} to {against['high']:+.1f})."
