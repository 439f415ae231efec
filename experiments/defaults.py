"""Compare defaults on real data: what changes when one number of `Hyper` is moved.

    python experiments/defaults.py FOLDER [--only NAME ...] [--markdown FILE]

FOLDER (or the environment variable JBOOST_DATA) is that of `real_data.py`, whose settings are used. Each cell is the
change of the data set's metric against the default, in percent, positive where the variant is better.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from real_data import HIGHER_IS_BETTER, POLICIES, fit_and_score, load_suite
from tqdm import tqdm

VARIANTS: tuple[dict[str, Any], ...] = (
    {"min_child_weight": 0.001},
    {"min_child_weight": 5.0},
    {"reg_lambda": 0.0},
    {"reg_lambda": 5.0},
    {"cat_smooth": 1.0},
    {"cat_smooth": 30.0},
)
DATA_SETS = (
    "california_housing",
    "ames_housing",
    "concrete",
    "wine_quality",
    "adult",
    "bank_full",
    "credit_default",
    "spambase",
    "satimage",
    "bike_sharing_hour",
)


def changes(suite: Any, name: str, policy: str) -> list[float]:
    """Fit the default and every variant; return the variants' improvements in percent."""
    data = suite.load(name)
    sign = 1 if data.metric_name in HIGHER_IS_BETTER else -1
    default, *others = (
        fit_and_score(suite, data, policy, variant)[data.metric_name] for variant in ({}, *VARIANTS)
    )
    return [100 * sign * (other / default - 1) for other in others]


def main() -> None:
    """Print the table, with the mean over the data sets below."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--only", nargs="*", default=DATA_SETS, help="names of data sets")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    suite = load_suite(Path(options.folder))
    heads = [", ".join(f"{name}={value}" for name, value in variant.items()) for variant in VARIANTS]
    lines = ["| data set | policy | " + " | ".join(heads) + " |", "|---" * (len(heads) + 2) + "|"]
    rows = []
    for name in tqdm(options.only, desc="data sets", disable=None):
        for policy in POLICIES:
            rows.append(changes(suite, name, policy))
            lines.append(f"| {name} | {policy} | " + " | ".join(f"{value:+.2f}" for value in rows[-1]) + " |")
            tqdm.write(lines[-1])
    lines.append("| mean | | " + " | ".join(f"{value:+.2f}" for value in np.mean(rows, axis=0)) + " |")
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
