"""The parts of `experiments/bench.py`: the rows of its table, the libraries, the measurements, the report."""
