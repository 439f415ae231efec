"""Trees as text, graphs and pictures; curves, bars and contours; and what is said without matplotlib."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jboost
from jboost import explain, plotting
from jboost.plotting.axes import cut_short
from jboost.plotting.nodes import Node, _membership, read_tree
from tests.test_explain import fitted
from tests.twin import problem


@pytest.fixture(autouse=True)
def no_window():
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def leaf_by_text(text: str, row: dict[str, float]) -> float:
    """Follow a row through a tree as it is written, to the value of its leaf."""
    lines = text.splitlines()
    place, indent = 0, 0
    while True:
        question = re.search(r"(f\d) (≤|=|≠|in|not in|is) (.+?) \(gain .*missing: (yes|no)\)$", lines[place])
        if question is None:
            return float(re.findall(r"(-?[\d.e-]+) \(cover [\d.]+\)$", lines[place])[0])
        name, sign, operand, missing = question.groups()
        value = row[name]
        if np.isnan(value):
            answer = missing
        elif sign == "≤":
            answer = "yes" if value <= float(operand) else "no"
        else:
            members = {float(one) for one in operand.strip("{}").split(", ")}
            answer = "yes" if (value in members) == (sign in ("=", "in")) else "no"
        start = [
            i
            for i in range(place + 1, len(lines))
            if lines[i][indent:].startswith((f"├─ {answer}", f"└─ {answer}"))
        ]
        place, indent = start[0], indent + 3


@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_the_text_of_a_tree_leads_rows_to_their_leaves(policy):
    rows, model = problem("mixed"), fitted(policy, kind="one")
    scores = [np.asarray(one) for one in jboost.staged_predict(model, rows.X)]
    for number in (1, 3):
        text = plotting.to_text(model, number)
        for i in range(0, 400, 13):
            row = {f"f{j}": value for j, value in enumerate(rows.X[i])}
            value = leaf_by_text(text, row)
            assert value == pytest.approx(scores[number][i] - scores[number - 1][i], rel=1e-2, abs=2e-3)
    assert plotting.to_text(model, -1) == plotting.to_text(model, 3)


def test_a_graph_has_each_node_once_and_says_where_missing_values_go():
    model = fitted("depthwise", kind="one")
    graph = plotting.to_graphviz(model, 0)
    nodes, edges = (
        re.findall(r"^  n(\d+) \[", graph, re.M),
        re.findall(r"n(\d+) -> n(\d+) \[label=\"(\w+)", graph),
    )
    assert len(nodes) == len(set(nodes)) == len(edges) + 1 == 7
    assert graph.count("missing") == 3
    assert {answer for *_, answer in edges} == {"yes", "no"}
    assert graph.count("{") == graph.count("}")


def test_trees_of_one_output_and_of_several():
    separate = fitted("depthwise", separate=True)
    with pytest.raises(ValueError, match="output must say which of 2 trees"):
        plotting.to_text(separate, 0)
    assert plotting.to_text(separate, 0, output=0) != plotting.to_text(separate, 0, output=1)
    shared = plotting.to_text(fitted("depthwise"), 0)
    assert ", " in shared.splitlines()[-1].split("(")[0]  # a vector in each leaf


def test_a_picture_of_a_tree_has_its_questions_and_leaves():
    model = fitted("depthwise", kind="one")
    text = plotting.to_text(model, 0)
    shown = [one.get_text().strip() for one in plotting.plot_tree(model, 0).texts]
    for question in re.findall(r"(?:yes: |no: |^)(f\d .+?) \(gain", text, re.M):
        assert question in shown
    assert sum("missing" in one for one in shown) == 3
    cut = [one.get_text() for one in plotting.plot_tree(model, 0, max_depth=1).texts]
    assert sum("2 leaves" in one for one in cut) == 2
    flat, _ = jboost.fit(
        jboost.losses.squared_error, np.zeros((8, 1)), np.arange(8.0), spec=jboost.Spec(n_estimators=1)
    )
    assert len(plotting.plot_tree(flat, 0).texts) == 2  # one leaf: its value and its cover


def test_long_names_keep_their_ends():
    assert cut_short("Municipality of place 12", 14) == "Municipal…e 12"
    assert cut_short("short", 5) == "short"
    many = _membership("town", [f"the town by the name of {k}" for k in range(30)], np.arange(30) > 12)
    assert many.endswith("the town by the name of 3, 9 more}")  # in words names stay whole
    assert cut_short(many, 30) == "town in {the town b…3, 9 more}"


def test_curves_of_a_history_and_of_an_estimator():
    rows = problem("plain")
    X, y = rows.X, rows.targets["real"]
    estimator = jboost.JBoostRegressor(
        n_estimators=8, max_depth=2, eval_metric=["mae", "rmse"], early_stopping=False
    )
    estimator.fit(X[:300], y[:300], eval_set=[(X[300:], y[300:])])
    axes = plotting.plot_history(estimator)
    assert [ax.get_ylabel() for ax in axes] == ["mean loss", "mae", "rmse"]
    np.testing.assert_allclose(axes[2].lines[0].get_ydata(), estimator.evals_result_["validation_0"]["rmse"])
    one = plotting.plot_history(estimator.evals_result_, metric="mae")
    np.testing.assert_allclose(one.lines[0].get_ydata(), estimator.evals_result_["validation_0"]["mae"])
    ax = plotting.plot_history(estimator, ax=one)
    assert ax is one
    history = estimator.history_
    assert [ax.get_ylabel() for ax in plotting.plot_history(history)] == ["mean loss", "validation metric"]


def test_bars_of_importances():
    rows, model = problem("mixed"), fitted(kind="one")
    found = explain.importance(model, "total_gain")
    ax = plotting.plot_importance(found, top=3)
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, np.sort(found.value)[::-1][:3])
    assert ax.get_yticklabels()[0].get_text() == f"feature {found.ranking()[0]}"
    shuffled = explain.permutation_importance(
        model, rows.X, rows.targets["real"], jboost.metrics.mse, features=[0, [1, 2]]
    )
    assert len(plotting.plot_importance(shuffled).lines) == shuffled.repeats.shape[1]
    of_class = explain.importance(fitted("depthwise", kind="classes", separate=True), per_class=True)
    labels = ["low", "middle", "high"]
    legend = plotting.plot_importance(of_class, labels=labels).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == labels


@pytest.mark.parametrize("features", [0, 4, (0, 1), (0, 3), (3, 4)], ids=str)
def test_pictures_of_dependence(features):
    rows, model = problem("mixed"), fitted()
    found = explain.partial_dependence(model, rows.X[:50], features, grid=5, kind="both")
    ax = plotting.plot_dependence(found, output=1, curves=7)
    names = [f"feature {j}" for j in np.atleast_1d(features)]
    assert ax.get_xlabel() in names
    if features == 0:
        assert len(ax.lines) == 8
        np.testing.assert_allclose(ax.lines[-1].get_ydata(), found.average[:, 1])
        assert len(plotting.plot_dependence(found).lines) == 2  # both outputs
    elif not isinstance(features, int):
        with pytest.raises(ValueError, match="output must say which"):
            plotting.plot_dependence(found)


def test_pictures_of_a_classifier_name_its_classes():
    rows, model = problem("mixed"), fitted(kind="classes")
    classifier = SimpleNamespace(model_=model, classes_=np.array(["high", "low", "middle"]))
    found = explain.partial_dependence(classifier, rows.X[:50], 0, grid=5)
    legend = plotting.plot_dependence(found).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["high", "low", "middle"]
    ax = plotting.plot_dependence(found, output="low")
    assert ax.get_ylabel() == "mean score of low"
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), found.average[:, 1])
    with pytest.raises(ValueError, match=r"output must be among .*'middle'.* got 'none'"):
        plotting.plot_dependence(found, output="none")
    assert (
        explain.partial_dependence(classifier, rows.X[:50], 0, grid=5, response=lambda s: s).outputs is None
    )
    two = SimpleNamespace(model_=fitted(kind="one"), classes_=np.array([False, True]))
    found = explain.partial_dependence(two, rows.X[:50], (0, 1), grid=5)
    assert plotting.plot_dependence(found).figure.axes[1].get_ylabel() == "mean score of True"
    ax = plotting.plot_tree(classifier, 0)
    shown = {patch.get_label() for patch in ax.get_legend().legend_handles}
    root = read_tree(model, 0)
    assert shown == {["high", "low", "middle"][leaf.value.argmax()] for leaf in leaves_of(root)}
    each = SimpleNamespace(
        model_=fitted("depthwise", kind="classes", separate=True), classes_=classifier.classes_
    )
    legend = plotting.plot_importance(explain.importance(each, per_class=True)).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["high", "low", "middle"]


def leaves_of(node: Node) -> list[Node]:
    return [leaf for child in node.children for leaf in leaves_of(child)] if node.children else [node]


def test_names_of_many_categories_have_room():
    towns = np.arange(90).repeat(2)
    spec = jboost.Spec(n_estimators=1, max_depth=1)
    model, _ = jboost.fit(
        jboost.losses.squared_error,
        jboost.bin_features(towns[:, None], categorical=[0]),
        towns % 2,
        spec=spec,
    )
    ax = plotting.plot_dependence(explain.partial_dependence(model, towns[:, None], 0))
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert len(ax.patches) == 90
    assert names == [str(town) for town in range(0, 90, 2)]
    assert ax.figure.get_figwidth() == 12


def test_bad_arguments_are_named():
    rows, model = problem("mixed"), fitted(kind="one")
    three = explain.partial_dependence(model, rows.X, (0, 1, 2), grid=2)
    no_number: Any = "0"
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: plotting.to_text(model, 4), ValueError, "number must be below 4"),
        (lambda: plotting.to_text(model, no_number), TypeError, "number must be an integer"),
        (lambda: plotting.to_text("model", 0), TypeError, "model must be a jboost.Ensemble"),
        (lambda: plotting.plot_tree(model, 0, output=1), ValueError, "output must be below 1"),
        (lambda: plotting.plot_tree(model, 0, max_depth=-1), ValueError, "max_depth must be"),
        (lambda: plotting.plot_history(model), TypeError, "history must be"),
        (lambda: plotting.plot_history({}), ValueError, "history must hold a curve"),
        (
            lambda: plotting.plot_history({"a": {"mae": [1.0]}}, metric="mse"),
            ValueError,
            "metric must be among 'mae'",
        ),
        (
            lambda: plotting.plot_tree(model, 0, ax=no_number),
            TypeError,
            "ax must be matplotlib axes or None, got str",
        ),
        (lambda: plotting.plot_importance([1.0]), TypeError, "importance must be what"),
        (lambda: plotting.plot_importance(explain.importance(model), top=0), ValueError, "top must be"),
        (lambda: plotting.plot_dependence([1.0]), TypeError, "dependence must be what"),
        (lambda: plotting.plot_dependence(three), ValueError, "of one feature or two"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()


def test_without_matplotlib_a_picture_says_what_to_install(monkeypatch):
    model = fitted(kind="one")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for draw in (
        lambda: plotting.plot_tree(model, 0),
        lambda: plotting.plot_importance(explain.importance(model)),
    ):
        with pytest.raises(ImportError, match=re.escape('pip install "jboost[plot]"')):
            draw()
    assert plotting.to_text(model, 0)
