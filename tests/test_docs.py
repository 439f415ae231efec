"""The documents run: code blocks, docstring examples, names and links."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import jboost

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "jboost"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.REPORT_ONLY_FIRST_FAILURE
CODE_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
DOTTED_NAME = re.compile(r"\bjboost((?:\.[A-Za-z_]\w*)+)")
FILE_NAME = re.compile(r"`((?:jboost|experiments|tests|docs)/[\w./-]*)`")


def _page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _code_blocks(text: str) -> list[str]:
    """Return the Python blocks, each behind as many empty lines as there are before it on the page."""
    return ["\n" * text[: match.start(1)].count("\n") + match[1] for match in CODE_BLOCK.finditer(text)]


def _public_names() -> list[tuple[str, Any]]:
    """List `jboost.X` for X in its __all__, and `jboost.module.X` for the modules among them."""
    names = [(f"jboost.{name}", getattr(jboost, name)) for name in jboost.__all__]
    for prefix, module in list(names):
        if isinstance(module, ModuleType):
            names += [(f"{prefix}.{name}", value) for name, value in _members(module)]
    return names


def _members(module: ModuleType) -> list[tuple[str, Any]]:
    """List what a public module offers: its __all__, else what it defines without an underscore."""
    if hasattr(module, "__all__"):
        return [(name, getattr(module, name)) for name in module.__all__]
    members = inspect.getmembers(module, lambda value: getattr(value, "__module__", None) == module.__name__)
    return [(name, value) for name, value in members if not name.startswith("_")]


PUBLIC = _public_names()
CALLABLES = [(name, value) for name, value in PUBLIC if inspect.isclass(value) or inspect.isroutine(value)]


LONG = (  # pages whose examples take long, or import a library that does
    "adaboost.md",
    "any-loss.md",
    "base-learners.md",
    "causal-and-fair.md",
    "differentiable.md",
    "distributions.md",
    "encoder.md",
    "explain.md",
    "files.md",
    "fine-tuning.md",
    "how-to-extend.md",
    "learned-losses.md",
    "linear.md",
    "numpyro.md",
    "ordered.md",
    "sampling.md",
    "sharding.md",
    "simulator.md",
    "split-finding.md",
    "sweeps.md",
    "tree-boost.md",
)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_page_id(page), marks=pytest.mark.slow if page.name in LONG else ())
        for page in PAGES
    ],
)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may save a model
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in _code_blocks(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), namespace)  # the line numbers of a traceback are the page's


def test_the_readme_shows_an_estimator_and_the_functional_core() -> None:
    code = "\n".join(_code_blocks((ROOT / "README.md").read_text(encoding="utf-8")))
    called = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    assert {"JBoostClassifier", "bin_features", "fit", "predict"} <= called


@pytest.mark.parametrize("page", PAGES, ids=_page_id)
def test_names_on_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for match in DOTTED_NAME.finditer(text):
        value: Any = jboost
        for name in match[1].strip(".").split("."):
            assert hasattr(value, name), f"{page.name} mentions {match[0]}, which does not exist"
            value = getattr(value, name)
    missing = [name for name in FILE_NAME.findall(text) if not (ROOT / name).exists()]
    missing += [
        link for link in LINK.findall(text) if "://" not in link and not (page.parent / link).exists()
    ]
    assert not missing, f"{page.name} mentions files that do not exist: {missing}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report: list[str] = []
    for case in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(case, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_all_lists_public_names_once_and_nothing_else() -> None:
    late = {
        name
        for name in (
            "AdaBoostClassifier",
            "boost",
            "fit_linear",
            "JBoostClassifier",
            "JBoostDistribution",
            "JBoostRegressor",
            "JBoostSearchCV",
            "OrderedTargetEncoder",
        )
        if hasattr(jboost, name)
    }
    imported = {name for name in vars(jboost) if not name.startswith("_")} | late
    submodules = {name for name in imported if isinstance(getattr(jboost, name), ModuleType)}
    assert len(jboost.__all__) == len(set(jboost.__all__))
    assert imported - submodules <= set(jboost.__all__) <= imported | {"__version__"}


@pytest.mark.parametrize(("name", "value"), CALLABLES, ids=[name for name, _ in CALLABLES])
def test_a_public_name_is_described_and_has_an_example(name: str, value: Any) -> None:
    # Its own text, not one that it inherits: `inspect.getdoc` would look into base classes.
    text = inspect.cleandoc(value.__doc__ or "")
    assert text, f"{name} has no docstring"
    assert ">>> " in text, f"the docstring of {name} has no example"


CLASSES = [(name, value) for name, value in CALLABLES if inspect.isclass(value)]


@pytest.mark.parametrize(("name", "value"), CLASSES, ids=[name for name, _ in CLASSES])
def test_public_methods_are_described(name: str, value: type) -> None:
    methods = [
        method
        for method, member in vars(value).items()
        if not method.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    ]
    undescribed = [method for method in methods if not inspect.getdoc(getattr(value, method))]
    assert not undescribed, f"{name} has methods without a docstring: {undescribed}"


def test_public_modules_are_described() -> None:
    undescribed = [name for name, value in PUBLIC if isinstance(value, ModuleType) and not value.__doc__]
    assert not undescribed


@pytest.mark.parametrize("page", [*PAGES, ROOT / ".ci" / "run"], ids=_page_id)
def test_targets_of_make_exist(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    text = page.read_text(encoding="utf-8")
    called = re.findall(r"(?:^|`|\" )make ([a-z]+)", text, re.MULTILINE)
    assert set(called) <= set(targets)
    assert called or page.name not in ("README.md", "CONTRIBUTING.md", "run")


def test_hosted_and_local_hooks_call_what_is_here() -> None:
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]  # nothing is downloaded
    tools = re.findall(r"entry: \.venv/bin/(\S+)", hooks)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"ruff", "lint-imports"} == set(tools)
    assert all(f"$(BIN)/{tool}" in makefile for tool in tools)


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", text, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert versions[0] == project["version"]
