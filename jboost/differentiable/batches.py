"""Mini-batches of `finetune`: rows, or whole groups of them, in an order that is drawn anew for each pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jboost._objective.rows import Groups, GroupTable, Rows, take_rows
from jboost._runtime.typing import as_array, pytree, static_field

Order = Int[Array, " n"] | tuple[Int[Array, " groups"], ...]


@pytree
class RowBatches:
    """So many rows a batch; what is left at the end of a pass waits for the next."""

    n: Int[Array, ""]  # batches of a pass
    size: int = static_field()

    @classmethod
    def of(cls, rows: Rows, size: int) -> RowBatches:
        """Share out the rows with weight."""
        n_rows = int((np.asarray(rows.weight) > 0).sum())
        return cls(as_array(np.int32(max(n_rows // size, 1))), size)

    def blank(self, rows: Rows) -> Order:
        """Return what an order looks like."""
        return as_array(np.arange(rows.weight.size, dtype=np.int32))

    def draw(self, key: Key[Array, ""], rows: Rows) -> Order:
        """Draw an order of the rows, those of weight 0 last."""
        return _drawn(key, rows.weight > 0, rows.weight.dtype)

    def take(self, order: Any, place: Array, rows: Rows, inputs: Any) -> tuple[Rows, Any]:
        """Return the rows of a batch, and what is known of them: arrays whose last axis is that of the rows."""
        chosen = jax.lax.dynamic_slice_in_dim(order, place * self.size, self.size)
        y, weight, offset = take_rows((rows.y, rows.weight, rows.offset), chosen)
        return Rows(y, weight, offset), jax.tree.map(lambda array: array[..., chosen], inputs)


@pytree
class GroupBatches:
    """Some groups of each class of sizes a batch: all batches have one shape, and each group comes once a pass."""

    n: Int[Array, ""]  # batches of a pass
    sizes: tuple[int, ...] = static_field()  # groups of a batch, of each table

    @classmethod
    def of(cls, rows: Rows, size: int) -> GroupBatches:
        """Share out the groups that hold a row with weight, so that a batch has about `size` rows."""
        assert rows.groups is not None
        n_rows = int((np.asarray(rows.weight) > 0).sum())
        n_groups = [max(int(np.asarray(_counts(table, rows)).sum()), 1) for table in rows.groups.tables]
        wanted = max(n_rows // size, 1)
        sizes = tuple(-(-n // wanted) for n in n_groups)
        n_batches = [-(-n // size) for n, size in zip(n_groups, sizes, strict=True)]
        return cls(as_array(np.int32(max(n_batches))), sizes)  # no batch is empty

    def blank(self, rows: Rows) -> Order:
        """Return what an order looks like."""
        assert rows.groups is not None
        return tuple(as_array(np.arange(len(table.row), dtype=np.int32)) for table in rows.groups.tables)

    def draw(self, key: Key[Array, ""], rows: Rows) -> Order:
        """Draw an order of the groups of each table, those without weight last."""
        assert rows.groups is not None
        tables, dtype = rows.groups.tables, rows.weight.dtype
        keys = jax.random.split(key, len(tables))
        return tuple(
            _drawn(one, _counts(table, rows), dtype) for one, table in zip(keys, tables, strict=True)
        )

    def take(self, order: Any, place: Array, rows: Rows, inputs: Any) -> tuple[Rows, Any]:
        """Return the rows of the groups of a batch, and what is known of them; places without a row have no weight."""
        assert rows.groups is not None
        row, there, tables, number, n_rows, n_groups = [], [], [], [], 0, 0
        for table, of_table, size in zip(rows.groups.tables, order, self.sizes, strict=True):
            at = place * size + np.arange(size, dtype=np.int32)
            group = of_table[jnp.minimum(at, of_table.size - 1)]
            is_row = table.is_row[group] & (at < of_table.size)[:, None]
            shape = is_row.shape
            new = n_rows + np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
            tables.append(GroupTable(as_array(new), is_row))
            number.append(n_groups + np.repeat(np.arange(shape[0], dtype=np.int32), shape[1]))
            row.append(table.row[group].ravel())
            there.append(is_row.ravel())
            n_rows, n_groups = n_rows + new.size, n_groups + shape[0]
        chosen, is_there = jnp.concatenate(row), jnp.concatenate(there)
        y, weight, offset = take_rows((rows.y, rows.weight, rows.offset), chosen)
        groups = Groups(as_array(np.concatenate(number)), tuple(tables))
        batch = Rows(y, jnp.where(is_there, weight, 0), offset, groups)
        return batch, jax.tree.map(lambda array: array[..., chosen], inputs)


def _counts(table: GroupTable, rows: Rows) -> Bool[Any, " groups"]:
    """Say which groups hold a row with weight."""
    return (table.is_row & (rows.weight[table.row] > 0)).any(axis=1)


def _drawn(key: Key[Array, ""], counts: Bool[Array, " n"], dtype: Any) -> Int[Array, " n"]:
    number: Float[Array, " n"] = jax.random.uniform(key, counts.shape, dtype)
    return jnp.argsort(jnp.where(counts, number, 2)).astype(jnp.int32)
