"""Which code and which libraries a script depends on, read from its imports.

Snakemake notices a changed script, not a changed module that the script imports. Each rule
therefore lists the script and every library module it reaches as `input.code`, and the
versions of every third-party package these import as `params.versions`. The harness is left
out: it cannot change a number.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "tokensphere"
HARNESS = f"{PACKAGE}.harness"

# Import names that differ from the name on the package index.
DISTRIBUTIONS = {"PIL": "pillow", "yaml": "PyYAML", "sklearn": "scikit-learn", "umap": "umap-learn"}
# Packages whose numbers come from another package that no module of ours imports.
COMPANIONS = {
    "transformers": ("tokenizers",),
    "hdbscan": ("scikit-learn", "scipy"),
    "umap": ("llvmlite", "numba", "pynndescent", "scikit-learn", "scipy"),
}


@cache
def _imports(path: Path) -> tuple[str, ...]:
    """Return the dotted names that a file imports, at any depth; `from a import b` is a.b."""
    names: list[str] = []
    for node in _executed(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{path}:{node.lineno}: write imports in full, without dots")
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a syntax tree but those that a type checker alone reads."""
    waiting = [tree]  # no expression holds a statement
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting += node.orelse
            case _:
                yield node
                waiting += (
                    part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)
                )


def _modules(name: str, scripts: Path) -> Iterator[Path]:
    """Yield the files that importing a dotted name of our package executes."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        place = scripts.joinpath(*parts[:length])
        if (place / "__init__.py").is_file():
            yield place / "__init__.py"
        elif place.with_suffix(".py").is_file():
            yield place.with_suffix(".py")


@cache
def _reach(script: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the files a script reaches (itself first) and the foreign packages they import."""
    scripts = script.parent
    files: dict[Path, None] = {}
    foreign: set[str] = set()
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files[path] = None
        for name in _imports(path):
            top = name.partition(".")[0]
            if name == HARNESS or name.startswith(HARNESS + "."):
                continue
            if top == PACKAGE:
                waiting += _modules(name, scripts)
            elif top not in sys.stdlib_module_names:
                foreign.add(top)
    return (script, *sorted(files.keys() - {script})), tuple(sorted(foreign))


def code(script: Path) -> list[Path]:
    """List a script and the library modules it imports, directly or through others.

    Parameters
    ----------
    script : Path
        A file in the flat folder of scripts, which also holds the package.

    Returns
    -------
    list of Path
        The script first, then modules by name; nothing of the harness.
    """
    return list(_reach(script)[0])


@cache
def locked_versions(lock: Path) -> dict[str, str]:
    """Read `name==version` lines of a lock file; names in lower case with hyphens."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", lock.read_text(), flags=re.MULTILINE)
    return {normalised(name): version for name, version in pins}


def normalised(distribution: str) -> str:
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def versions(script: Path, lock: Path) -> dict[str, str]:
    """Look up the locked version of every third-party package that a script's code imports.

    Raises
    ------
    ValueError
        If a package has no line in the lock file.
    """
    pins = locked_versions(lock)
    found: dict[str, str] = {}
    for package in _reach(script)[1]:
        for distribution in (DISTRIBUTIONS.get(package, package), *COMPANIONS.get(package, ())):
            name = normalised(distribution)
            if name not in pins:
                raise ValueError(f"{script.name} imports {package}, which {lock.name} does not pin")
            found[name] = pins[name]
    return dict(sorted(found.items()))
