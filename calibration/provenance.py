"""Facts about a pipeline and its environment that a calibration depends on."""

from galaxydit.pipelines.conditions import PACKAGES, device_name, package_versions

__all__ = ["PACKAGES", "device_name", "package_versions"]
