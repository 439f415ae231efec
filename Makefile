# The two commands that matter: `make demo` and `make test`. Each makes its own virtual environment when it is
# missing. Variables: PYTHON (which interpreter the environment is made from), WORKERS and ARGS (for pytest).

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
CANDIDATES := python3 python3.11 python3.12 python3.13 python3.14 python

# The first candidate on PATH that runs, is new enough and can make virtual environments (Debian keeps ensurepip apart).
PYTHON ?= $(shell for candidate in $(CANDIDATES); do \
	if $$candidate -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then command -v $$candidate; break; fi; done)

# What pyproject.toml asks for, one requirement a line: the build's, the library's and those of the named extras.
define REQUIREMENTS
import sys, tomllib
table = tomllib.load(open("pyproject.toml", "rb"))
extras = [table["project"]["optional-dependencies"][name] for name in sys.argv[1:]]
print(*table["build-system"]["requires"], *table["project"]["dependencies"], *sum(extras, []), sep="\n")
endef
export REQUIREMENTS

PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
NATIVE_SOURCES := setup.py $(wildcard jboost/*/*.cpp jboost/*/*.h jboost/*/*/*.cpp jboost/*/*/*.h)

# Most of a test's time is compilation: programs of earlier runs are kept here.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax

# Inner functions check the shapes and dtypes of their annotations in every call (tests/conftest.py): it costs little.
export JBOOST_CHECK_TYPES ?= 1

# Half of the compilation is LLVM's optimisation of programs that then run for milliseconds; XLA_FLAGS= keeps it.
# Before JAX 0.11 tests/conftest.py adds two other flags.
test slow plain: export XLA_FLAGS ?= --xla_backend_optimization_level=0

.DEFAULT_GOAL := help
.PHONY: help demo test slow plain check format clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.demo $(VENV)/.package ## fit real data with built-in and self-written losses, print a table, draw curves
	$(BIN)/python experiments/demo.py

test: $(VENV)/.test $(VENV)/.package ## run the tests, but for those marked slow
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

slow: $(VENV)/.test $(VENV)/.package ## run the slow tests: further cases, long examples, sanitizers, several processes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

CORE := $(addprefix tests/test_,$(addsuffix .py,split tree histogram fixed_point quantise sampling))
CORE += tests/test_fit.py::test_fit_equals_the_numpy_twin # without the library a whole fit takes five seconds to compile

plain: $(VENV)/.test $(VENV)/.package ## run the tests of the core without the C++ library
	JBOOST_NATIVE=0 JBOOST_REQUIRE_NATIVE=0 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(CORE) $(ARGS)

check: $(VENV)/.test $(VENV)/.package ## check format, lint, types and the floors of the package
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.test ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove environments, caches and what was built
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find jboost -name '*.so' -delete

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
	echo "jboost needs Python 3.11 or newer with its venv module; none of these on PATH is: $(CANDIDATES)." >&2; \
	echo "Install one (Debian: apt install python3 python3-venv) or name one: make PYTHON=/path/to/python ..." >&2; \
	exit 1; }
	@echo "making the virtual environment $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

# Third parties first, then jboost without build isolation: the C++ part must be compiled, anew, against the headers
# of the very jaxlib that will load it. Each step leaves a stamp, older than its inputs exactly when there is work to do.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing what jboost needs into $(VENV) (some hundred MB; minutes on a slow line)"
	@$(BIN)/python -c "$$REQUIREMENTS" plot > $@.txt
	@$(PIP) install --requirement $@.txt
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/python -c "$$REQUIREMENTS" test > $@.txt
	@$(PIP) install --requirement $@.txt
	@touch $@

$(VENV)/.package: $(VENV)/.demo $(NATIVE_SOURCES)
	@echo "installing jboost into $(VENV) (in place; with its C++ part where there is a compiler)"
	@rm -rf build; find jboost -name '*.so' -delete
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@
