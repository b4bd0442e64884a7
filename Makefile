# make demo   train a ViT on real digits in Flax, carry it to PyTorch, show that they are the same
# make test   the whole suite
# make quick  what is told in under two minutes: schemas, files, dialects, errors, formulas, a few checks
# make family every architecture of timm's ViT, DeiT, EVA and BEiT against the twins, in about ten minutes
# make steps  train both twins 100 steps on digits: each step, and the whole run beside its shadows
# make table  every dialect of checkpoints into every other, in a minute
# make mutations   the verifier against every deliberate fault, once each, in a few minutes
# make environments   PyTorch and JAX in environments of their own, compared in a third
# make lint   ruff and pyright
# make smoke  build a wheel and try it in a clean environment
# Everything runs in a virtual environment of its own, .venv, made on first use.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# rooms whose tests hardly compile anything, and a few that do
QUICK := mirror schema composition tables parameters bad_* schedules recipe_losses recipe_clipping \
	numerics negative_controls check_words dialect_core dialect_layout dialect_plugin dialect_timm_config \
	dialect_hf_f* dialect_clip folds card containers* weights_file convert_command pixels augment data* \
	catalogue catalogue_model catalogue_heads match* traces_torch diff_bad fleet_parts runs_foreign_bad plots

.PHONY: demo test quick family steps table mutations environments lint smoke

demo: $(VENV)/ready
	rm -rf runs/demo
	$(RUN) train.py --run-dir runs/demo

test: $(VENV)/ready
	$(RUN) -m pytest -n auto

quick: $(VENV)/ready
	$(RUN) -m pytest -n auto -m "not slow" $(wildcard $(QUICK:%=tests/test_%.py))

family: $(VENV)/ready
	$(RUN) -m parity sweep --processes 2

steps: $(VENV)/ready
	$(RUN) -m parity check-steps digits --steps 100 --dtype float64

table: $(VENV)/ready
	$(RUN) tools/dialect_table.py

mutations: $(VENV)/ready
	$(RUN) tools/mutation_score.py --quick

environments:
	./tests/environments.sh .environments

lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

# constraints.txt pins every version this repository is tested with
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable ".[all,peers,dev]"
	touch $@

# a wheel, installed in a clean environment, used from another folder
smoke: $(VENV)/ready
	rm -rf build dist && $(RUN) -m build --quiet --wheel
	./tests/smoke_wheel.sh dist/*.whl
