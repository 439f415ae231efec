"""The cover of a tree's nodes: what the rows that reach them weigh, and their sums of h."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def node_cover(of_leaves: Float[Array, "*t leaves c"]) -> Float[Array, "*t nodes c"]:
    """Return the cover of every node, given that of the leaves: a node has what its two children have together.

    Parameters
    ----------
    of_leaves : float [..., 2**d, c]
        `Ensemble.leaf_hessian` or `Ensemble.leaf_count`, of some trees or of one.

    Returns
    -------
    float [..., 2**(d + 1) - 1, c]
        The nodes in level order: node 0 is the root, the children of node i are 2 i + 1 (left) and 2 i + 2, and the
        last 2**d are the leaves. A depthwise tree splits node s by its slot s; a symmetric tree splits all nodes of
        level s, 2**s - 1 to 2**(s + 1) - 2, by its slot s. NaN where the cover is not known.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost._model.cover import node_cover
    >>> node_cover(jnp.array([[1.0], [2.0], [3.0], [4.0]]))[:, 0].tolist()
    [10.0, 3.0, 7.0, 1.0, 2.0, 3.0, 4.0]
    """
    levels = [of_leaves]
    while levels[0].shape[-2] > 1:
        below = levels[0]
        levels.insert(0, below[..., ::2, :] + below[..., 1::2, :])
    return jnp.concatenate(levels, axis=-2)
