"""Hand the reports of ended generations to `on_report`, once no lock is held: it may wait, or change the settings."""

import warnings
from collections import deque
from collections.abc import Callable

from galaxydit.report import Report


class Listener:
    """Serves all sessions of one acceleration. An error of `on_report` becomes a warning, because the video is made."""

    def __init__(self, on_report: Callable[[Report], None] | None = None) -> None:
        self._on_report = on_report
        self._ended = deque[Report]()

    def add(self, report: Report) -> None:
        if self._on_report is not None:
            self._ended.append(report)

    def tell(self) -> None:
        while self._ended and self._on_report is not None:
            try:
                report = self._ended.popleft()
            except IndexError:  # another thread told the last one
                return
            try:
                self._on_report(report)
            except Exception as error:
                warnings.warn(f"galaxydit: on_report raised {error!r}; the report is kept", stacklevel=2)
