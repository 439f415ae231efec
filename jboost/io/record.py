"""A model as plain data, and back: a record of names, categories and choices, and a dictionary of arrays."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jboost._bins import BinEdges, Categories, Features, edges_from_exact
from jboost._model.ensemble import Ensemble
from jboost._tree import Tree
from jboost.io.checks import has_subsets
from jboost.losses import INVERSE_LINKS

_OF_MODEL = ("base", "leaf_value", "leaf_hessian", "leaf_count", "tree_weight")


@dataclass(frozen=True)
class MissingLink:
    """Stands in for an inverse link that a record cannot hold, because it is a function of the user's own."""

    name: str

    def __call__(self, score: jax.Array) -> NoReturn:
        """Raise: the function is not known here."""
        raise RuntimeError(
            f"the inverse link of this model, {self.name}, is not one of jboost's, and no file holds code; "
            "give it to jboost.load(path, inverse_link=...). Raw scores do not need it"
        )


# ---------------------------------------------------------------- from a model


def to_record(model: Ensemble) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the static fields of a model in the types of JSON, and its arrays."""
    features = model.edges.features
    record = {
        "names": None if features.names is None else list(features.names),
        "categories": [None if known is None else _categories_entry(known) for known in features.categories],
        "n_codes": model.edges.n_codes,
        "max_bins": model.edges.max_bins,
        **({} if features.missing is None else {"missing": features.missing}),
        **({} if features.source is None else {"source": list(features.source)}),
        "inverse_link": link_entry(model.inverse_link),
        "scalar_output": model.scalar_output,
        "symmetric": model.symmetric,
        "multi_output": "separate" if model.trees.feature.ndim == 3 else "vector",
    }
    arrays = {name: getattr(model, name) for name in _OF_MODEL} | {"edges": model.edges.exact}
    arrays |= {field.name: getattr(model.trees, field.name) for field in dataclasses.fields(Tree)}
    if model.trees.categories_right is None:
        arrays["categories_right"] = np.zeros((*model.trees.feature.shape, 0), np.uint32)
    return record, {name: np.asarray(array) for name, array in arrays.items()}


def _categories_entry(known: Categories) -> dict[str, Any]:
    entry = {"values": list(known.values), "codes": list(known.codes)}
    return entry | {"unknown": known.unknown} if known.is_statistic else entry


def link_entry(link: Callable[..., Any]) -> dict[str, Any]:
    """Return the name of an inverse link, and whether it is one of ours."""
    for name, built_in in INVERSE_LINKS.items():
        if link is built_in:
            return {"name": name, "built_in": True}
    if isinstance(link, MissingLink):
        return {"name": link.name, "built_in": False}
    kind = link if hasattr(link, "__qualname__") else type(link)
    return {"name": f"{kind.__module__}.{kind.__qualname__}", "built_in": False}


# ---------------------------------------------------------------- to a model


def to_model(
    record: dict[str, Any], arrays: dict[str, np.ndarray], inverse_link: Callable[..., Any] | None
) -> Ensemble:
    """Make a model of a checked record and arrays, with the recorded inverse link unless one is given."""
    leaf_value = arrays["leaf_value"]
    trees = Tree(*(jnp.asarray(arrays[field.name]) for field in dataclasses.fields(Tree)))
    if not any(has_subsets(entry) for entry in record["categories"]):
        trees = dataclasses.replace(trees, categories_right=None)
    n_counts = leaf_value.shape[2] if record["multi_output"] == "separate" else 1
    of_version_1 = {
        "leaf_hessian": np.full_like(leaf_value, np.nan),
        "leaf_count": np.full_like(leaf_value[..., :n_counts], np.nan),
        "tree_weight": np.ones_like(leaf_value[:, 0, 0]),
    }
    return Ensemble(
        **{name: jnp.asarray((of_version_1 | arrays)[name]) for name in _OF_MODEL},
        trees=trees,
        edges=_edges(record, arrays),
        inverse_link=link_of(record["inverse_link"]) if inverse_link is None else inverse_link,
        scalar_output=record["scalar_output"],
        symmetric=record["symmetric"],
    )


def _edges(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> BinEdges:
    names = None if record["names"] is None else tuple(record["names"])
    categories = tuple(
        None
        if entry is None
        else Categories(tuple(entry["values"]), tuple(entry["codes"]), entry.get("unknown"))
        for entry in record["categories"]
    )
    return edges_from_exact(
        arrays["edges"],
        record["n_codes"],
        record["max_bins"],
        Features(names, categories, record.get("missing"), _source(record)),
    )


def _source(record: dict[str, Any]) -> tuple[int, ...] | None:
    return None if record.get("source") is None else tuple(record["source"])


def link_of(entry: dict[str, Any]) -> Callable[..., Any]:
    """Return the inverse link of that name, or what stands in for one of the user's own."""
    if not entry["built_in"]:
        return MissingLink(entry["name"])
    if entry["name"] not in INVERSE_LINKS:
        known, got = ", ".join(INVERSE_LINKS), reprlib.repr(entry["name"])
        raise ValueError(f"inverse_link: expected one of {known}, got {got}; give inverse_link to load")
    return INVERSE_LINKS[entry["name"]]
