"""Features in bundles, as a tree reads them: fewer columns, whose histograms are summed out for each feature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32, UInt8

from jboost._bins import Binned, Bundles
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import as_array
from jboost._tree import native
from jboost._tree.columns import Bundling, Grouped, Joint

FEWEST_ROWS = 4096  # for which bundles are looked for
WORTH = 2.0  # additions of rows to be saved for each cell of a joint table that is summed out


def bundles_that_pay(data: Binned, depth: int) -> Bundles | None:
    """Return the bundles of binned rows if they make trees of that depth faster.

    They save an addition for each row, level and feature that has no column of its own, a half below the root, and cost
    one for each node, feature and joint code.
    """
    n_rows = data.bins.shape[1]
    found = data.bundles if n_rows >= FEWEST_ROWS else None
    if found is None:
        return None
    n_columns, n_features = len(found.n_joint), len(found.column)
    saved = n_rows * (n_features - n_columns) * (1 + (depth - 1) / 2)
    spent = 2**depth * int(found.n_joint[found.column].sum())
    return found if saved >= WORTH * spent else None


def bundled_on_host(bundles: Bundles, n_rows: int, grouped: bool) -> tuple[Joint | Grouped, Bundling]:
    """Add rows up to `n_rows` to joint codes, and lay them out side by side if need be; say what they stand for.

    Up to eight columns are filled up to a power of two, so that few programs serve all numbers of them.
    """
    n_columns = len(bundles.n_joint)
    if grouped:
        width = 1 << (n_columns - 1).bit_length() if n_columns <= native.GROUP else None
        joint = native.group_on_host(bundles.joint, n_rows, width)
        places = joint.shape[0] * joint.shape[2]
    else:
        joint, places = pad_axis(bundles.joint, n_rows, axis=1), n_columns
    n_joint = np.append(bundles.n_joint, np.zeros(places - n_columns, np.int32))
    tables = bundles.column, bundles.code, n_joint, *_by_code(bundles)
    return as_array(joint), Bundling(*map(as_array, tables))


def _by_code(bundles: Bundles) -> tuple[UInt8[np.ndarray, "f 256"], Int32[np.ndarray, " f"]]:
    """Order the joint codes by the code of each feature, those of the code that has most of them last.

    What these sum to is what the others leave of the total.
    """
    n_joint = bundles.n_joint[bundles.column][:, None]
    is_joint = np.arange(bundles.code.shape[1]) < n_joint
    counts = np.stack(
        [np.bincount(codes[:n], minlength=256) for codes, n in zip(bundles.code, n_joint[:, 0], strict=True)]
    )
    usual = counts.argmax(axis=1)
    is_usual = bundles.code == usual[:, None]
    rank = np.where(is_joint, np.where(is_usual, 256, bundles.code.astype(np.int32)), 257)
    order = np.argsort(rank, axis=1, kind="stable").astype(np.uint8)
    return order, (is_joint & ~is_usual).sum(axis=1, dtype=np.int32)


def own_histograms(bundling: Bundling, joint: Int[Array, "j c l m"], n_codes: int) -> Int[Array, "b c l f"]:
    """Sum the histograms of joint codes over what the other features of their columns are.

    Sums of integers: the same as of the rows.
    """
    of_column = jnp.moveaxis(joint, 3, 0)

    def of_feature(column: Int[Array, ""], code: Int[Array, " j"]) -> Int[Array, "b c l"]:
        empty = jnp.zeros((n_codes, *joint.shape[1:3]), joint.dtype)
        return empty.at[code].add(of_column[column], mode="drop")

    return jax.vmap(of_feature, out_axes=3)(bundling.column, bundling.code.astype(jnp.int32))
