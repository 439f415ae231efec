"""What the comparison asks of each library: bin, fit, predict, each in the fastest way that it offers to all.

Depth 6, logistic loss, learning rate 0.1 and lambda 1 unless a sweep says otherwise. A library is imported when its
class is instantiated, so that a process holds no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

FEATURES = 28
DEPTH = 6
RATE, PENALTY = 0.1, 1.0
GOSS = (0.2, 0.1)  # shares of the rows with large gradients, and of all that are drawn from the others


def make_data(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal features and a class that depends on some of them, with an interaction and noise.

    In float32 from the start: float64 in between would be the peak memory of every library.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, FEATURES), dtype=np.float32)
    logit = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] - 0.5 * X[:, 4] ** 2
    return X, (rng.random(n_rows, dtype=np.float32) < 1 / (1 + np.exp(-logit))).astype(np.int32)


def make_zeros(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw 60 independent columns of zeros and 5 % ones, and a class that depends on ten of them."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, 60), dtype=np.float32) < 0.05).astype(np.float32)
    logit = X[:, :10].sum(axis=1) - 0.5
    return X, (rng.random(n_rows, dtype=np.float32) < 1 / (1 + np.exp(-logit))).astype(np.int32)


class Library(Protocol):
    """One library on one device."""

    def bin(self, X: Any, y: np.ndarray, bins: int) -> Any:
        """Bin the data once, for several fits; X may be a sparse matrix."""
        ...

    def fit(self, data: Any, trees: int, rate: float = RATE, penalty: float = PENALTY) -> Any:
        """Fit to binned data; return the model, complete on the host or the device."""
        ...

    def predictors(self, model: Any, X: np.ndarray) -> dict[str, Callable[[], Any]]:
        """Offer ways from raw rows to raw scores."""
        ...


class JBoost:
    """Trees of either growth policy as arrays; `policy` chooses. "exact" tries every value, by node."""

    def __init__(self, gpu: bool, threads: int, policy: str = "symmetric") -> None:
        import jboost

        self.jboost, self.exact = jboost, policy == "exact"
        self.policy = "depthwise" if self.exact else policy

    def spec(self, trees: int) -> Any:
        """Say how trees are grown."""
        return self.jboost.Spec(n_estimators=trees, max_depth=DEPTH, grow_policy=self.policy)  # pyright: ignore

    def bin(self, X: Any, y: np.ndarray, bins: int) -> Any:
        """Bin; targets go along. Bundles, which the first fit would look for, are part of it."""
        data = self.jboost.bin_features(X, max_bins="exact" if self.exact else bins)
        _ = data.bundles
        return data, y

    def fit(self, data: Any, trees: int, rate: float = RATE, penalty: float = PENALTY) -> Any:
        """Fit by the built-in loss."""
        return self._fit(self.jboost.losses.logistic, data, trees, rate, penalty)

    def fit_custom(self, data: Any, trees: int) -> Any:
        """Fit by the loss of a user, without what the built-in one knows of itself."""
        return self._fit(user_loss, data, trees, RATE, PENALTY)

    def fit_goss(self, data: Any, trees: int) -> Any:
        """Fit by the rows with large gradients and some others."""
        sampler = self.jboost.samplers.goss(*GOSS)
        return self._fit(self.jboost.losses.logistic, data, trees, RATE, PENALTY, sampler)

    def _fit(self, loss: Any, data: Any, trees: int, rate: float, penalty: float, sampler: Any = None) -> Any:
        import jax

        hyper = self.jboost.Hyper(learning_rate=rate, reg_lambda=penalty)
        fitted = self.jboost.fit(
            loss, *data, spec=self.spec(trees), hyper=hyper, sampler=sampler, verbose=False
        )
        return jax.block_until_ready(fitted)[0]

    def sweep(self, data: Any, trees: int, rates: np.ndarray, penalties: np.ndarray) -> Callable[[], Any]:
        """Prepare one call that fits a model for every pair of rate and penalty."""
        import jax
        import jax.numpy as jnp

        def one(rate: Any, penalty: Any, binned: Any, y: Any) -> Any:
            hyper = self.jboost.Hyper(learning_rate=rate, reg_lambda=penalty)
            return self.jboost.fit(
                self.jboost.losses.logistic, binned, y, spec=self.spec(trees), hyper=hyper, verbose=False
            )[0]

        # Data as arguments: XLA would fold captured arrays as constants.
        together = jax.jit(jax.vmap(one, in_axes=(0, 0, None, None)))
        arguments = (jnp.asarray(rates), jnp.asarray(penalties), *jax.tree.map(jnp.asarray, data))
        return lambda: jax.block_until_ready(together(*arguments))

    def predictors(self, model: Any, X: np.ndarray) -> dict[str, Callable[[], Any]]:
        """Predict, binning included."""
        return {"predict": lambda: np.asarray(self.jboost.predict(model, X))}


def user_loss(score: Any, y: Any) -> Any:
    """Logistic loss of one row, as a user of jboost would write it."""
    import jax.numpy as jnp

    return jnp.logaddexp(0, score) - y * score


class XGBoost:
    """Depthwise trees by histograms, or by every value."""

    def __init__(self, gpu: bool, threads: int, exact: bool = False) -> None:
        import xgboost

        self.xgboost, self.threads, self.exact = xgboost, threads, exact
        self.options = {"max_depth": DEPTH, "nthread": threads, "device": "cuda" if gpu else "cpu"}

    def bin(self, X: Any, y: np.ndarray, bins: int) -> Any:
        """Bin."""
        if self.exact:
            self.options["tree_method"] = "exact"
            return self.xgboost.DMatrix(X, y, nthread=self.threads)
        self.options["max_bin"] = bins
        return self.xgboost.QuantileDMatrix(X, y, max_bin=bins, nthread=self.threads)

    def fit(self, data: Any, trees: int, rate: float = RATE, penalty: float = PENALTY) -> Any:
        """Fit by the built-in loss."""
        options = {"objective": "binary:logistic", "eta": rate, "lambda": penalty}
        return self.xgboost.train(self.options | options, data, trees)

    def fit_custom(self, data: Any, trees: int) -> Any:
        """Fit by an objective in Python."""

        def objective(score: np.ndarray, rows: Any) -> tuple[np.ndarray, np.ndarray]:
            probability = 1 / (1 + np.exp(-score))
            return probability - rows.get_label(), probability * (1 - probability)

        return self.xgboost.train(self.options | {"eta": RATE}, data, trees, obj=objective)

    def predictors(self, model: Any, X: np.ndarray) -> dict[str, Callable[[], Any]]:
        """Predict from the array, or through a matrix of the library's own."""
        return {
            "inplace_predict": lambda: model.inplace_predict(X, predict_type="margin"),
            "predict": lambda: model.predict(
                self.xgboost.DMatrix(X, nthread=self.threads), output_margin=True
            ),
        }


class LightGBM:
    """Trees grown leaf by leaf, up to as many leaves as the depth allows; on the CPU."""

    def __init__(self, gpu: bool, threads: int) -> None:
        import lightgbm  # pyright: ignore[reportMissingImports]

        self.lightgbm = lightgbm
        self.common = {"num_threads": threads, "verbose": -1}
        self.sampling: dict[str, Any] = {}

    def bin(self, X: Any, y: np.ndarray, bins: int) -> Any:
        """Bin."""
        self.common["max_bin"] = bins
        return self.lightgbm.Dataset(X, y, params=self.common).construct()

    def fit(self, data: Any, trees: int, rate: float = RATE, penalty: float = PENALTY) -> Any:
        """Fit by the built-in loss."""
        options = {"objective": "binary", "max_depth": DEPTH, "num_leaves": 2**DEPTH}
        options |= {"learning_rate": rate, "lambda_l2": penalty}
        return self.lightgbm.train(self.common | options | self.sampling, data, trees)

    def fit_goss(self, data: Any, trees: int) -> Any:
        """Fit by the rows with large gradients and some others, from round 1 / RATE on."""
        self.sampling = {"data_sample_strategy": "goss", "top_rate": GOSS[0], "other_rate": GOSS[1]}
        return self.fit(data, trees)

    def predictors(self, model: Any, X: np.ndarray) -> dict[str, Callable[[], Any]]:
        """Predict from the array."""
        threads = self.common["num_threads"]
        return {"predict": lambda: model.predict(X, raw_score=True, num_threads=threads)}


class CatBoost:
    """Symmetric trees."""

    def __init__(self, gpu: bool, threads: int) -> None:
        import catboost  # pyright: ignore[reportMissingImports]

        self.catboost, self.threads, self.bins = catboost, threads, 255
        self.options = {
            "loss_function": "Logloss",
            "depth": DEPTH,
            "thread_count": threads,
            "task_type": "GPU" if gpu else "CPU",
            "verbose": False,
            "allow_writing_files": False,
        }

    def bin(self, X: np.ndarray, y: np.ndarray, bins: int) -> Any:
        """Bin."""
        self.bins = bins
        data = self.catboost.Pool(X, y, thread_count=self.threads)
        data.quantize(border_count=bins)
        return data

    def fit(self, data: Any, trees: int, rate: float = RATE, penalty: float = PENALTY) -> Any:
        """Fit by the built-in loss."""
        options = {"iterations": trees, "learning_rate": rate, "l2_leaf_reg": penalty}
        model = self.catboost.CatBoostClassifier(**self.options, **options, border_count=self.bins)
        return model.fit(data)

    def predictors(self, model: Any, X: np.ndarray) -> dict[str, Callable[[], Any]]:
        """Predict from the array."""
        options = {"prediction_type": "RawFormulaVal", "thread_count": self.threads}
        return {"predict": lambda: model.predict(X, **options)}


def dependence_of(name: str, X: np.ndarray, y: np.ndarray, trees: int) -> Callable[[Any], Any]:
    """Fit an estimator; return a function of the method that computes the partial dependence of feature 0."""
    if name == "sklearn":
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.inspection import partial_dependence

        options = {"max_iter": trees, "max_depth": DEPTH, "max_leaf_nodes": 2**DEPTH, "early_stopping": False}
        peer = HistGradientBoostingClassifier(**options).fit(X, y)
        return lambda method: partial_dependence(
            peer, X, [0], method=method, response_method="decision_function", kind="average"
        )
    import jboost

    policy = name.partition("-")[2] or "symmetric"
    estimator = jboost.JBoostClassifier(n_estimators=trees, max_depth=DEPTH, grow_policy=policy).fit(X, y)
    return lambda method: jboost.explain.partial_dependence(estimator, X, 0, method=method)


def load(name: str, gpu: bool, threads: int) -> Library:
    """Import a library; `jboost-depthwise` is jboost with that growth policy, `xgboost-exact` tries every value."""
    library, _, policy = name.partition("-")
    if library == "jboost":
        return JBoost(gpu, threads, policy or "symmetric")
    if name == "xgboost-exact":
        return XGBoost(gpu, threads, exact=True)
    peers: dict[str, Callable[[bool, int], Library]] = {
        "xgboost": XGBoost,
        "lightgbm": LightGBM,
        "catboost": CatBoost,
    }
    return peers[library](gpu, threads)
