"""Random numbers of rows: row i's depend on the key and on i alone, so that padding a data set does not change them."""

from jboost._random.bits import random_bits, uniform

__all__ = ["random_bits", "uniform"]
