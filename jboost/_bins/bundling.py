"""Bundles: features that share one column, found once for the rows of a fit.

A column of a bundle holds joint codes: the combinations of its features' codes that occur, at most 256 of them, and a
table tells the code of each feature at each. Features that exclude each other (one-hot columns) need one joint code
more for each, as in the exclusive feature bundling of LightGBM; features of few codes, such as eight of two codes, fit
together too; and rows where two features meet are just one more joint code. So nothing is approximated: the histogram
of a bundle, summed over what the others are, is that of a feature, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, UInt8

from jboost._bins.joining import MOST_JOINT_CODES, join_codes

OPEN_BUNDLES = 4  # that a feature may join, the latest first
SAMPLED_ROWS = 1024  # of which the screening looks at the codes
SAMPLED_RUN = 64  # rows next to each other among them
SAVING = 1.5  # features for each column, from which on bundles are worth having
SAVING_OF_PAIRS = 2.5  # where codes are so few that columns are added in pairs without bundles
CODES_OF_PAIRS = 64

Bins = UInt8[np.ndarray, "f n"]


@dataclass(frozen=True, eq=False)
class Bundles:
    """The features of a `Binned` in fewer columns.

    Attributes
    ----------
    joint : uint8 [m, n]
        The joint code of each row in each of the m columns; in the column of a feature alone, its own codes.
    column : int32 [f]
        The column of each feature.
    code : uint8 [f, 256]
        The code of each feature at each joint code of its column; 0 beyond the last one.
    n_joint : int32 [m]
        How many joint codes each column has; in the column of a feature alone, how many codes any feature has.

    References
    ----------
    Ke et al. (2017), LightGBM: a highly efficient gradient boosting decision tree, section 4 (exclusive features).

    Examples
    --------
    One-hot columns exclude each other; four of them, one of which is always there, take four joint codes:

    >>> import numpy as np, jboost
    >>> data = jboost.bin_features(np.eye(4)[np.arange(100) % 4])
    >>> bundles = data.bundles
    >>> bundles.features, bundles.n_joint.tolist()
    (((0, 1, 2, 3),), [4])
    >>> np.array_equal(bundles.code[2][bundles.joint[0]], data.bins[2])
    True
    """

    joint: UInt8[np.ndarray, "m n"]
    column: Int32[np.ndarray, " f"]
    code: UInt8[np.ndarray, "f 256"]
    n_joint: Int32[np.ndarray, " m"]

    @property
    def features(self) -> tuple[tuple[int, ...], ...]:
        """The features of each column."""
        members = [[] for _ in self.n_joint]
        for feature, column in enumerate(self.column.tolist()):
            members[column].append(feature)
        return tuple(map(tuple, members))


@dataclass
class _Bundle:
    """A bundle while it grows."""

    features: list[int]
    joint: UInt8[np.ndarray, " n"]
    codes: UInt8[np.ndarray, "k j"]  # of each of its features, at each joint code

    @property
    def n_joint(self) -> int:
        return self.codes.shape[1]

    def take(self, feature: int, codes: UInt8[np.ndarray, " n"], n_codes: int) -> bool:
        """Add a feature, unless joint codes would be too many."""
        found = join_codes(self.joint, codes, self.n_joint, n_codes)
        if found is None:
            return False
        before, own = np.divmod(found.pairs, n_codes)
        self.features.append(feature)
        self.joint, self.codes = found.codes, np.vstack([self.codes[:, before], own.astype(np.uint8)])
        return True


def find_bundles(bins: Bins, n_codes: int) -> Bundles | None:
    """Find bundles among columns of codes [f, n] below `n_codes`, or return None where they would save too little.

    Greedy, in the order of the columns: each feature goes to the latest of a few open bundles that has room for it.
    Which features may share a column at all is told by a sample of the rows; what is done to them is then exact.
    """
    n_features = len(bins)
    screened = _screened(_sample(bins))
    if not _saves(n_features, n_features - int(screened.hopeful.sum()) + 1, n_codes):
        return None
    bundles: list[_Bundle] = []
    for feature in np.flatnonzero(screened.hopeful).tolist():
        codes = np.ascontiguousarray(bins[feature])
        own_codes = int(codes.max()) + 1
        if own_codes > n_codes:  # in a `Binned` made by hand: a table of the feature would not hold them
            return None
        may_exclude, n_sampled = bool(screened.mostly_one[feature]), int(screened.n_codes[feature])

        def takes(bundle: _Bundle) -> bool:
            fits = bundle.n_joint * n_sampled <= MOST_JOINT_CODES  # noqa: B023
            return (fits or may_exclude) and bundle.take(feature, codes, own_codes)  # noqa: B023

        if not any(takes(bundle) for bundle in reversed(bundles[-OPEN_BUNDLES:])):
            bundles.append(_Bundle([feature], codes, np.arange(own_codes, dtype=np.uint8)[None]))
    return _assembled(bins, n_codes, [bundle for bundle in bundles if len(bundle.features) > 1])


def _saves(n_features: int, n_columns: int, n_codes: int) -> bool:
    return n_features >= (SAVING if n_codes > CODES_OF_PAIRS else SAVING_OF_PAIRS) * n_columns


@dataclass
class _Screened:
    """What a sample of the rows tells of each feature."""

    n_codes: Int32[np.ndarray, " f"]
    mostly_one: Bool[np.ndarray, " f"]  # whether at least half of the rows have the same code

    @property
    def hopeful(self) -> Bool[np.ndarray, " f"]:
        """Whether the feature may share a column: with others that it excludes, or with one of two codes."""
        return self.mostly_one | (2 * self.n_codes <= MOST_JOINT_CODES)


def _sample(bins: Bins) -> Bins:
    n = bins.shape[1]
    if n <= SAMPLED_ROWS:
        return bins
    starts = np.linspace(0, n - SAMPLED_RUN, SAMPLED_ROWS // SAMPLED_RUN).astype(int)
    return np.concatenate([bins[:, start : start + SAMPLED_RUN] for start in starts], axis=1)


def _screened(sample: Bins) -> _Screened:
    n_features, n_rows = sample.shape
    cells = sample + MOST_JOINT_CODES * np.arange(n_features, dtype=np.int32)[:, None]
    counts = np.bincount(cells.ravel(), minlength=MOST_JOINT_CODES * n_features).reshape(
        n_features, MOST_JOINT_CODES
    )
    return _Screened((counts > 0).sum(axis=1), 2 * counts.max(axis=1) >= n_rows)


def _assembled(bins: Bins, n_codes: int, shared: list[_Bundle]) -> Bundles | None:
    """Put bundles and the features that are in none side by side."""
    alone = np.ones(len(bins), bool)
    for bundle in shared:
        alone[bundle.features] = False
    n_columns = len(shared) + int(alone.sum())
    if not _saves(len(bins), n_columns, n_codes):
        return None
    column = np.zeros(len(bins), np.int32)
    column[alone] = np.arange(len(shared), n_columns)
    code = np.zeros((len(bins), MOST_JOINT_CODES), np.uint8)
    code[alone] = np.arange(MOST_JOINT_CODES)
    for place, bundle in enumerate(shared):
        column[bundle.features] = place
        code[bundle.features, : bundle.n_joint] = bundle.codes
    n_joint = np.array([bundle.n_joint for bundle in shared] + [n_codes] * int(alone.sum()), np.int32)
    joint = np.empty((n_columns, bins.shape[1]), np.uint8)
    for place, bundle in enumerate(shared):
        joint[place] = bundle.joint
    joint[len(shared) :] = bins[alone]
    return Bundles(joint, column, code, n_joint)
