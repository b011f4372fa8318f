"""Read YAML: the configuration, its schema, the catalogues of metrics and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# libyaml, where PyYAML has it: every start of Snakemake reads some 2,000 lines.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: str | Path) -> Any:
    """Return what a YAML file holds; None if it is empty.

    Parameters
    ----------
    path : str or Path
        In UTF-8.

    Raises
    ------
    OSError, yaml.YAMLError
        If it cannot be read, or is no YAML.
    """
    return yaml.load(Path(path).read_text(encoding="utf-8"), Loader=LOADER)
