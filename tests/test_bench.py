"""The comparison of speed: its arithmetic and its table from given figures, its choices, a few tiny runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from experiments import bench
from experiments.benchmark import (
    cases,
    estimators,
    fresh,
    libraries,
    plotting,
    profiling,
    report,
    rows,
    running,
    searches,
)

OPTIONS = running.Options(threads=1)
NAMES = [row.name for row in rows.ROWS]


def named(*names):
    return [row for row in rows.ROWS if row.name in names]


def results() -> dict[str, Any]:
    """Make figures whose ratios are simple fractions."""
    return {
        "cpu-255": {
            "jboost": {"ms_per_tree": 30.0, "peak_mib": 900.0},
            "jboost-depthwise": {"ms_per_tree": 45.0, "peak_mib": 950.0},
            "xgboost": {"ms_per_tree": 60.0, "peak_mib": 450.0},
            "lightgbm": {"ms_per_tree": 50.0, "peak_mib": 300.0},
            "catboost": {"skipped": "not installed"},
        },
        "predict": {"jboost": {"error": "MemoryError"}, "xgboost": {"seconds": 2.0}},
        "custom-loss": {
            "jboost": {"ms_per_tree": 31.2, "built_in_ms_per_tree": 30.0},
            "xgboost": {"ms_per_tree": 1.0, "built_in_ms_per_tree": 0.5},
        },
        "first-fit": {"jboost": {"seconds": 2.0}, "xgboost": {"seconds": 0.5}},
        "sweep-cpu": {"jboost": {"seconds": 3.0}},
    }


def record() -> dict[str, Any]:
    return {
        "about": {"versions": {"jax": "0.10.2"}, "processor": "a processor", "cores": 2, "load": 0.0},
        "options": {"threads": 2, "repeats": 3, "rounds": 1, "rows": None, "trees": None, "quick": False},
        "rows": ["cpu-255", "memory", "custom-loss", "first-fit", "predict", "sweep-cpu"],
        "cases": results(),
    }


# ------------------------------------------------------------------------------------------ ratios and table


def test_lines_hold_ratios_and_verdicts():
    found = {line.name: line for line in report.make_lines(rows.ROWS, results())}
    assert {name: (line.ratio, line.other_name, line.verdict) for name, line in found.items()} == {
        "cpu-255": (0.6, "lightgbm", "stretch met"),
        "cpu-255 depthwise": (0.9, "lightgbm", "wanted met"),
        "memory": (2.0, "xgboost", "behind"),  # XGBoost is the measure, though LightGBM takes less
        "sweep-cpu": (None, "", "no peer"),
        "custom-loss": (1.04, "built in", "wanted met"),
        "predict": (None, "xgboost", "MemoryError"),
        "first-fit": (4.0, "xgboost", "wanted met"),  # 2 s are judged, not the ratio
    }


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.5, "stretch met"), (0.51, "wanted met"), (0.7, "wanted met"), (0.71, "behind"), (None, "no peer")],
)
def test_bounds_belong_to_the_better_verdict(value, verdict):
    assert report.judge(value, wanted=0.7, stretch=0.5) == verdict


def test_the_table_has_a_line_for_each_row_and_aligned_columns():
    text = report.table(report.make_lines(named("cpu-255", "first-fit"), results()))
    head, *lines = text.splitlines()
    assert len(lines) == 3
    assert all(line[head.index("verdict") :] in ("stretch met", "wanted met") for line in lines)
    assert " ".join(lines[0].split()) == "cpu-255 30 ms/tree 50 ms/tree (lightgbm) 0.60 0.9 0.6 stretch met"
    assert "3 s" in lines[2]


def test_details_list_failures_and_absent_libraries():
    text = report.details(results())
    assert "error MemoryError" in text
    assert "skipped not installed" in text


def test_the_headline_tells_of_a_busy_machine_and_of_changed_sizes():
    about, options = record()["about"], record()["options"]
    plain = report.headline(about, options)
    assert "busy" not in plain
    assert "--rows" not in plain
    changed = report.headline(about | {"load": 1.0}, options | {"rows": 500})
    assert "busy" in changed
    assert "--rows 500" in changed


def test_every_row_can_be_judged():
    assert all(row.stretch <= row.wanted for row in rows.ROWS)
    assert all(row.case.kind in cases.KINDS for row in rows.ROWS)
    assert len(set(NAMES)) == len(NAMES)


# ------------------------------------------------------------------------------------------ choosing


def test_an_unknown_row_is_an_error_that_lists_the_rows(capsys):
    with pytest.raises(SystemExit):
        bench.parse(["--only", "cpu-255", "cpu-256"])
    message = capsys.readouterr().err
    assert "cpu-256" in message.split("the rows are")[0]
    assert message.split("the rows are ")[1].strip().split(", ") == NAMES


def test_without_names_the_device_chooses():
    assert {row.case.device for row in rows.select([], gpu=False)} == {"cpu", "any"}
    assert {row.case.device for row in rows.select([], gpu=True)} == {"gpu", "any"}
    assert [row.name for row in rows.select(["predict", "cpu-63"], gpu=True)] == ["cpu-63", "predict"]


def test_a_row_of_the_gpu_needs_one():
    with pytest.raises(ValueError, match="gpu-63"):
        rows.select(["gpu-63", "cpu-63"], gpu=False)


def test_list_prints_every_row(capsys):
    bench.main(["--list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES


def test_memory_alone_runs_two_libraries_and_shares_the_processes_of_its_case():
    case = named("memory")[0].case
    assert rows.libraries_of(named("memory"), case) == ("jboost", "xgboost")
    assert running.plan(named("cpu-255", "memory"), OPTIONS) == running.plan(named("cpu-255"), OPTIONS)


def test_libraries_take_turns_in_every_round():
    processes = running.plan(named("custom-loss"), running.Options(threads=1, rounds=2))
    assert [library for _, library in processes] == ["jboost", "xgboost"] * 2


def test_options_replace_the_sizes_of_a_case():
    case = named("gpu-8m-63")[0].case
    job = running.make_job(case, "jboost", running.Options(threads=3, rows=10, trees=2), gpu=True)
    assert (job.rows, job.trees, job.bins, job.gpu, job.threads) == (10, 2, 63, True, 3)
    assert not running.make_job(named("predict")[0].case, "xgboost", OPTIONS, gpu=True).gpu


# ------------------------------------------------------------------------------------------ running


def test_a_failure_does_not_stop_the_others_and_rounds_give_medians(monkeypatch):
    monkeypatch.setattr(running, "is_installed", lambda library: library != "catboost")
    seconds = iter([5.0, 1.0, 3.0])

    def run(job, device):
        return {"seconds": next(seconds)} if job.library == "jboost" else {"error": "broken"}

    options = running.Options(threads=1, rounds=3)
    found = running.run_all(named("cpu-10k"), options, False, run)
    assert found["cpu-10k"] == {
        "jboost": {"seconds": 3.0},
        "xgboost": {"error": "broken"},
        "lightgbm": {"error": "broken"},
        "catboost": {"skipped": "not installed"},
    }


def test_a_median_leaves_failures_out_and_counts_them():
    runs = [{"seconds": 1.0, "way": "a"}, {"error": "broken"}, {"seconds": 2.0, "way": "a"}]
    assert running.middle(runs) == {"seconds": 1.5, "way": "a", "failed_runs": 1}


def test_an_interrupt_keeps_what_is_done(monkeypatch):
    monkeypatch.setattr(running, "is_installed", lambda library: True)

    def run(job, device):
        if job.library == "lightgbm":
            raise KeyboardInterrupt
        return {"seconds": 1.0}

    found = running.run_all(named("cpu-10k", "predict"), OPTIONS, False, run)
    assert found == {"cpu-10k": {"jboost": {"seconds": 1.0}, "xgboost": {"seconds": 1.0}}}


def test_a_process_that_fails_gives_its_last_line():
    figures = running.run_apart(cases.Job("nonsense", "jboost", 1, 1, 1, False, 1, 1))
    assert figures == {"error": "KeyError: 'nonsense'"}


def test_children_compile_everything_and_keep_to_the_cpu(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "somewhere")
    assert "JAX_COMPILATION_CACHE_DIR" not in running.environment("any")
    assert running.environment("cpu")["JAX_PLATFORMS"] == "cpu"
    assert running.environment("cpu")["JBOOST_CACHE"] == "0"


def test_figures_survive_their_file(tmp_path, capsys):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(record()))
    bench.show(record())
    shown = capsys.readouterr().out
    bench.main(["--load", str(first), "--json", str(second)])
    assert capsys.readouterr().out == shown
    assert json.loads(second.read_text()) == record()


@pytest.mark.slow  # two processes that import JAX and compile
def test_a_tiny_run_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "figures.json"
    bench.main(["--only", "memory", "--rows", "300", "--trees", "2", "--repeats", "1", "--json", str(file)])
    figures = json.loads(file.read_text())["cases"]["cpu-255"]
    ratio = figures["jboost"]["peak_mib"] / figures["xgboost"]["peak_mib"]
    assert f" {ratio:.2f} " in capsys.readouterr().out
    assert figures["jboost"]["peak_mib"] > figures["jboost"]["peak_before_binning_mib"] > 0


# ------------------------------------------------------------------------------------------ libraries


@pytest.fixture(scope="module")
def data():
    return libraries.make_data(400)


def test_data_are_the_same_every_time_and_hold_both_classes(data):
    X, y = libraries.make_data(400)
    np.testing.assert_array_equal(X, data[0])
    assert X.dtype == np.float32
    assert 0.2 < y.mean() < 0.8


@pytest.mark.slow
def test_the_loss_of_the_user_gives_the_model_of_the_built_in_one(data):
    library = libraries.JBoost(gpu=False, threads=1)
    binned = library.bin(*data, bins=63)
    scores = [
        library.predictors(model, data[0])["predict"]()
        for model in (library.fit(binned, 5), library.fit_custom(binned, 5))
    ]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_sweep_gives_the_models_of_single_fits(data):
    library = libraries.JBoost(gpu=False, threads=1)
    binned = library.bin(*data, bins=63)
    rates, penalties = np.array([0.05, 0.3], np.float32), np.array([0.5, 8.0], np.float32)
    models = library.sweep(binned, 3, rates, penalties)()
    for i in range(2):
        alone = library.fit(binned, 3, float(rates[i]), float(penalties[i]))
        np.testing.assert_array_equal(models.trees.feature[i], alone.trees.feature)
        np.testing.assert_allclose(models.leaf_value[i], alone.leaf_value, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adaboost", "gradient"])
def test_estimators_of_the_textbook_do_the_same(kind, data):
    found = [estimators.make_estimator(kind, library, 20, 1).fit(*data) for library in ("jboost", "sklearn")]
    agree = np.mean(found[0].predict(data[0]) == found[1].predict(data[0]))
    assert agree > 0.9


def test_ways_to_predict_agree(data):
    library = libraries.XGBoost(gpu=False, threads=1)
    model = library.fit(library.bin(*data, bins=63), 3)
    first, second = (way() for way in library.predictors(model, data[0]).values())
    np.testing.assert_allclose(first, second, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.slow
def test_dependence_is_timed_by_both_methods():
    job = cases.Job("dependence", "jboost", 200, 3, 255, False, 1, 1)
    found = cases.dependence(job)
    assert found["seconds"] > 0 < found["recursion_seconds"]


def test_compilations_are_counted(caplog):
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        found = cases.recompile(cases.Job("recompile", "jboost", 310, 4, 17, False, 1, 1))
    logged = sum(message.startswith("Compiling ") for message in caplog.messages)
    assert logged == found["in_the_first_fit"] + found["compilations"]
    assert found["in_the_first_fit"] >= 1  # no other test has 17 bins


@pytest.mark.slow  # eight processes, of which five import JAX
def test_a_new_process_is_timed_from_outside(monkeypatch):
    """And begins with no program on disk if it is to be cold, with those of a process like it if warm."""
    stored, time_one = [], fresh._time

    def watch(command, environment):
        folder = Path(environment["JBOOST_CACHE"])
        stored.append(len(list(folder.iterdir())) if folder.exists() else 0)
        return time_one(command, environment)

    monkeypatch.setattr(fresh, "_time", watch)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)  # as in a benchmark
    X, y = libraries.make_data(60)
    for warm in (False, True):
        one = fresh.time_processes("jboost", X, y, 1, 15, warm)
        assert one["cpu_seconds"] > 0.1
        assert one["seconds"] > 0.1
    assert stored[:4] == [0] * 4  # an import and a fit, twice
    assert stored[4] > 0
    peer = fresh.time_processes("sklearn", X, y, 1, 15, False)
    assert peer["seconds"] > 0


@pytest.mark.slow
def test_a_process_that_cannot_fit_says_why():
    with pytest.raises(RuntimeError, match=r"^ValueError: Found array with 0 feature"):
        fresh.time_processes("sklearn", np.zeros((3, 0)), np.zeros(3), 1, 15, False)


# ------------------------------------------------------------------------------------------ profile and plot

PROGRAM = """HloModule jit_run_chunk

FileNames
1 "/somewhere/jboost/boosting/rounds.py"
2 "/somewhere/jboost/_histogram/native.py"
3 "/elsewhere/script.py"

FunctionNames
1 "step"
2 "build"
3 "<module>"

FileLocations
1 {file_name_id=3 function_name_id=3 line=1 end_line=1 column=1 end_column=1}
2 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 end_column=1}
3 {file_name_id=2 function_name_id=2 line=1 end_line=1 column=1 end_column=1}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}

ENTRY %main {
  %ffi_call.3 = s32[4]{0} custom-call(%a), custom_call_target="jboost_histogram", metadata={stack_frame_id=3}
  ROOT %add_fusion = f32[4]{0} fusion(%b), kind=kLoop, metadata={op_name="jit(run_chunk)/add" stack_frame_id=2}
}
"""


def test_operations_are_traced_to_the_code_they_came_from():
    assert profiling.read_sources(PROGRAM) == {
        "ffi_call.3": profiling.Source("histograms", "jboost_histogram"),
        "add_fusion": profiling.Source("other", "boosting/rounds.py:step"),
    }


@pytest.mark.parametrize(
    ("calls", "group"),
    [
        (
            ["losses.py:logistic", "_objective/derivatives.py:derivatives_by_row", "boosting/rounds.py:step"],
            "derivatives",
        ),
        (["_fixed_point/quantise.py:quantise", "_objective/leaf_rules.py:leaf_values"], "leaves"),
        (["_split/thresholds.py:best", "_tree/__init__.py:grow_tree"], "split search"),
        (["_tree.py:leaf_index", "_model/ensemble.py:leaf_of"], "routing"),
        (["_runtime/library.py:call", "_tree/native.py:grow"], "whole tree in C++"),
        ([], "other"),
    ],
)
def test_calls_have_a_group(calls, group):
    assert profiling.group_of(calls) == group


def test_an_operation_does_not_count_what_runs_inside_of_it():
    span = profiling.Span
    threads = [
        [span("while", 0, 100), span("a", 10, 40), span("b", 20, 30), span("a", 50, 60)],
        [span("a", 0, 5)],
    ]
    assert profiling.own_times(threads) == {"while": 60, "a": 20 + 10 + 5, "b": 10}


def test_a_profile_sums_groups_per_tree():
    sources = {"a": profiling.Source("leaves", "f"), "b": profiling.Source("leaves", "g")}
    text = profiling.report(Counter({"a": 2_000_000, "b": 4_000_000, "c": 2_000_000}), sources, trees=2)
    cells = [line.split() for line in text.splitlines()[1:4]]
    assert cells == [["leaves", "3.000", "75%"], ["other", "1.000", "25%"], ["sum", "4.000", "100%"]]


@pytest.mark.slow  # a process that compiles
def test_a_profile_of_a_fit_finds_its_parts(capsys):
    bench.main(["--profile", "cpu-63", "--rows", "3000", "--trees", "3"])
    shares = {
        line[:24].strip(): float(line[24:34])
        for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[2:]
    }
    grown = shares.get("whole tree in C++", 0) + shares.get("histograms", 0)
    assert grown > 0
    assert {"derivatives", "leaves", "sum"} <= shares.keys()
    assert sum(shares.values()) == pytest.approx(2 * shares["sum"], abs=0.01)


def test_a_plot_is_drawn(tmp_path):
    file = tmp_path / "ratios.png"
    plotting.draw(report.make_lines(rows.ROWS, results()), file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_plot_needs_a_ratio(tmp_path):
    with pytest.raises(ValueError, match="ratio"):
        plotting.draw(report.make_lines(named("sweep-cpu"), results()), tmp_path / "ratios.png")


def test_a_share_of_the_settings_of_a_search_has_every_number_once():
    share, every = searches.settings(8), searches.settings()
    assert (len(share), len(every)) == (8, 64)
    assert all(one in every for one in share)
    for name in ("learning_rate", "reg_lambda"):
        assert {one[name][0] for one in share} == {one[name][0] for one in every}


def test_a_search_is_timed_with_other_numbers_each_time(monkeypatch):
    made = []

    def make(library, trees, threads, shift):
        made.append((library, trees, threads, shift))
        return SimpleNamespace(fit=lambda X, y: None)

    monkeypatch.setattr(searches, "make_search", make)
    figures = cases.search(cases.Job("search", "jboost", 100, 3, 255, False, 2, repeats=2))
    assert figures["calls"] == 2
    assert made == [("jboost", 3, 2, shift) for shift in (1.0, 1.01, 1.02)]
