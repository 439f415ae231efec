"""Row samplers: with which weight each row takes part in a round, by chance alone or by its derivatives."""

from jboost._sampling import Sampler
from jboost.samplers.by_chance import bayesian_bootstrap, bootstrap, stratified, without_replacement
from jboost.samplers.by_gradient import goss, mvs

__all__ = ["Sampler", "bayesian_bootstrap", "bootstrap", "goss", "mvs", "stratified", "without_replacement"]
