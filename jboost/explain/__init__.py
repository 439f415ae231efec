"""What a model has learned: importances, partial dependence, interactions, components.

Each function takes a `jboost.Ensemble` or a fitted estimator; none knows how the model was fitted.
"""

from jboost.explain.dependence import PartialDependence, partial_dependence

__all__ = ["PartialDependence", "partial_dependence"]
