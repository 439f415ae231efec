"""Accuracy on real data, where it is at hand: no data set falls behind the median of the peers beyond the margin."""

from __future__ import annotations

import json

import pytest

from experiments import real_data


@pytest.mark.slow
@pytest.mark.parametrize("name", ["concrete", "lightgbm_binary"])  # numbers only; with row weights
def test_a_data_set_is_not_behind_the_median_peer(name, data_folder):
    suite = real_data.load_suite(data_folder)
    known = json.loads((data_folder / "peers_accuracy.json").read_text())["results"]
    data = suite.load(name)
    ours = {"symmetric": real_data.fit_and_score(suite, data, "symmetric", {})}
    peers = real_data.peer_scores(known, name, data.metric_name)
    row = real_data.compare(name, data.metric_name, len(data.test_index), ours, peers)
    assert row["verdict"] in ("better", "level"), row
