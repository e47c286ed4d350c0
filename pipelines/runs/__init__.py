# ruff: noqa: F401
"""Runs: many units of work, made in this process, in several, or on Ray, kept in a store, and resumed after a kill.

A unit is one piece of work, such as one generation; a maker makes it; its record, a JSON file of the store, says that
it is done or failed. A worker is a process, or several that share each video (`Rank`).
"""

from galaxydit.pipelines.runs.in_processes import InProcesses
from galaxydit.pipelines.runs.on_ray import OnRay
from galaxydit.pipelines.runs.own_folder import move_aside, open_own
from galaxydit.pipelines.runs.progress import LiveProgress, expect, more_to_come, name_stage, progress_of
from galaxydit.pipelines.runs.run import Executor, InProcess, Maker, Outcome, Progress, Rank, new_record, results, run
from galaxydit.pipelines.runs.store import Store
from galaxydit.pipelines.runs.unit import Output, Record, StoredFile, Unit, hash_of, not_checked
