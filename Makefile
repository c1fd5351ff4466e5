# Everything starts from here: each target sets up what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Not compiled: pip would compile all of torch's thousands of files one after another, and few are ever imported. Those
# are compiled when they first are, which the following must not prevent.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
CORE_SOURCES := pyproject.toml CMakeLists.txt $(wildcard cmake/*) $(shell find cpp -name '*.h' -o -name '*.cpp')
# Another stamp whenever a module was added, moved or removed: an editable installation knows each by its name.
MODULES := $(VENV)/.modules-$(shell find src -name "*.py" | sort | cksum | cut -d " " -f 1)
CPP_SOURCES := $(shell find cpp -name '*.h' -o -name '*.cpp')

.PHONY: help train setup test test-all site docs docs-serve notebooks browser screenshots pyright interop oracle wheel-check wheels matrix check format sanitize \
  fuzz aarch64 aarch64-wheel bench bench-quick bench-compare bench-learning bench-training \
  clean

help:
	@echo "make train           set up what training needs, train a lunar lander, show how well it lands"
	@echo "make test            set everything up, check the code, run the tests"
	@echo "make test-all        the same, and what takes long or repeats at length what others have shown: before a release"
	@echo "make docs            build the documentation as a site, build/site, and check it: a minute"
	@echo "make docs-serve      show that site at http://127.0.0.1:8000, built again whenever a page changes"
	@echo "make notebooks       make and run the notebooks of tutorials whose pages have changed"
	@echo "make interop         envfleet with other libraries, each in a virtual environment of its own below build/interop"
	@echo "make browser         the live page, the report and the site in Chromium, with an accessibility check: five minutes"
	@echo "make screenshots     take the pictures of all three for the docs"
	@echo "make oracle          native environments against Gymnasium's, over whole episodes: ten minutes"
	@echo "make wheel-check     build the wheel with and without Box2D, see what is in it and what works: three minutes"
	@echo "make wheels          the source distribution and wheels for every Python of this machine, tested: dist/, 15 minutes"
	@echo "make matrix          those wheels with the oldest and the newest of what pyproject.toml asks for"
	@echo "make sanitize        run the C++ tests under the address, undefined-behaviour and thread sanitizers, then make fuzz"
	@echo "make fuzz SEED=0     have sanitized compiled modules take whatever comes, a minute for each program in tests/fuzz"
	@echo "make aarch64         run the C++ tests for 64-bit ARM, in an emulator"
	@echo "make aarch64-wheel   build the wheel for 64-bit ARM and test it, in an emulator: after make wheels"
	@echo "make bench           set everything up, measure every engine, its peers and their trainers on this machine: 40 minutes"
	@echo "make bench-quick     the same in three minutes, for a first look"
	@echo "make bench-compare BASE=rev  before and after a change of ours, with instruction counts: five minutes"
	@echo "make bench-learning  what the algorithms learn, several seeds each, two at a time: a day"
	@echo "make bench-training  training against Stable-Baselines3, SBX, PufferLib, rlox and a plain loop: about an hour"
	@echo "make check           linters and type checker only"
	@echo "make pyright         another type checker, on a user's program"
	@echo "make format          lay the code out"

# What the compilation needs.
$(VENV)/.created: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip
	$(INSTALL) "scikit-build-core>=0.10" "nanobind>=2.2" "numpy>=2.0" ninja cmake
	@touch $@

# torch before all others and pinned: any package that asks for it would take the newest, with its CUDA libraries.
$(VENV)/.torch: $(VENV)/.created
	$(INSTALL) torch -c constraints.txt
	@touch $@

# Compiled while torch is downloaded: pip, which builds once more, finds all of it in the build folder.
$(VENV)/.compiled: $(VENV)/.created $(CORE_SOURCES)
	@mkdir -p build
	$(BIN)/python -c "from scikit_build_core.build import build_editable; build_editable('build/ahead')" \
	  > build/ahead.log 2>&1 || { cat build/ahead.log; exit 1; }
	@touch $@

BESIDE_EACH_OTHER := $(VENV)/.torch $(VENV)/.compiled

# Editable: Python sources are used where they lie; only a change of the C++ core builds again.
$(MODULES): $(VENV)/.created
	@rm -f $(VENV)/.modules-*
	@touch $@

$(VENV)/.trainable: $(VENV)/.created $(CORE_SOURCES) $(MODULES)
	@$(MAKE) --no-print-directory --jobs 2 $(BESIDE_EACH_OTHER)
	$(INSTALL) --no-build-isolation --editable ".[train]" "gymnasium[box2d]>=1.4" -c constraints.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.created $(CORE_SOURCES) $(MODULES)
	@$(MAKE) --no-print-directory --jobs 2 $(BESIDE_EACH_OTHER)
	$(INSTALL) --no-build-isolation --editable ".[dev]" -c constraints.txt
	@touch $@ $(VENV)/.trainable

setup: $(VENV)/.installed

train: $(VENV)/.trainable
	$(BIN)/envfleet train LunarLander-v3 --algo a2c --num-envs 10

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers auto
	$(BIN)/clang-format --dry-run --Werror $(CPP_SOURCES)

# A second type checker, on a program as users write it; it brings Node.js.
pyright: setup
	$(INSTALL) pyright
	$(BIN)/pyright --pythonpath $(BIN)/python tests/user_program.py

test: check
	$(BIN)/python -m pytest --side-by-side --durations 10

# With what is long by nature or repeats at length what a shorter test has shown.
test-all: check
	ENVFLEET_ALL_TESTS=1 $(BIN)/python -m pytest --side-by-side --durations 10 --cpu-seconds 10

# The site loads nothing from elsewhere, and whatever is not as it should be ends the build: mkdocs.yml, docs/site.md.
$(VENV)/.documentable: $(VENV)/.installed
	$(INSTALL) --no-build-isolation --editable ".[docs]" -c constraints.txt
	@touch $@

MKDOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

site: $(VENV)/.documentable
	$(MKDOCS) build --strict

docs: site
	ENVFLEET_SITE=$(abspath build/site) $(BIN)/python -m pytest tests/site

docs-serve: $(VENV)/.documentable
	$(MKDOCS) serve

notebooks: setup
	$(BIN)/python website/notebooks.py

# The libraries are listed in tests/interop/libraries.py; one alone: .venv/bin/python tests/interop/run.py NAME
interop: setup
	$(BIN)/python tests/interop/run.py

# The pages in Debian's Chromium, driven by Playwright; axe-core, from npm, looks at them as a screen reader's user would.
BROWSER := build/browser
AXE := $(BROWSER)/package/axe.min.js

$(AXE): $(VENV)/.installed
	@command -v chromium > /dev/null && command -v npm > /dev/null || { \
	  echo "This needs Chromium and npm: apt-get install chromium npm"; exit 1; }
	$(INSTALL) "playwright>=1.49"
	mkdir -p $(BROWSER)
	cd $(BROWSER) && npm pack --silent axe-core@4.14.0 > /dev/null && tar xzf axe-core-4.14.0.tgz
	@touch $@

browser: $(AXE) site
	ENVFLEET_BROWSER=1 ENVFLEET_AXE=$(abspath $(AXE)) $(BIN)/python -m pytest tests/browser

screenshots: $(AXE) site
	$(BIN)/python tests/browser/screenshots.py

# The record of what was compared, then the table in the docs that is made from it, then the test that both agree.
oracle: setup
	ENVFLEET_WHOLE_EPISODES=1 ENVFLEET_ALL_TESTS=1 $(BIN)/python -m pytest tests/oracle --ignore tests/oracle/test_parity_table.py \
	  --parity-record tests/oracle/parity.json
	$(BIN)/python tests/oracle/parity.py
	$(BIN)/python -m pytest tests/oracle/test_parity_table.py

wheel-check: setup
	ENVFLEET_WHEELS=1 $(BIN)/python -m pytest tests/packaging -s

# Wheels for those who have no compiler: release/wheels.py builds them, tests/packaging/test_dist.py installs and tests them.
wheels: setup
	$(BIN)/python release/wheels.py
	ENVFLEET_DIST=1 $(BIN)/python -m pytest tests/packaging/test_dist.py -s

# Of wheels that are in dist/.
matrix: setup
	$(BIN)/python release/matrix.py

# The engine and the compiled environments without Python, as programs that end with an error or not at all.
CPP_TESTS := $(basename $(notdir $(wildcard cpp/tests/*.cpp)))
NUMPY = $(shell $(BIN)/python -c "import numpy; print(numpy.get_include())")
CPP_TEST_FLAGS = -std=c++20 -O1 -g -Wall -Wextra -Werror -ffp-contract=off -Icpp -isystem $(NUMPY) -pthread

sanitize: setup
	mkdir -p build/sanitize
	set -e; for kind in address,undefined thread; do for name in $(CPP_TESTS); do \
	  $(CXX) $(CPP_TEST_FLAGS) -fsanitize=$$kind -fno-sanitize-recover=all -fno-omit-frame-pointer cpp/tests/$$name.cpp \
	    $(NUMPY)/../../random/lib/libnpyrandom.a -o build/sanitize/$$name-$$kind; \
	  build/sanitize/$$name-$$kind; echo "$$name: nothing found by the $$kind sanitizer"; \
	done; done
	$(MAKE) fuzz

# The compiled modules, built once more with the sanitizers, in the place of the usual ones. What Python itself does not
# free at its end is no leak of ours.
SECONDS ?= 60
SEED ?= 0
FUZZ := build/fuzz
FUZZ_RUN = LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:handle_segv=0:detect_odr_violation=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc

fuzz: setup
	$(BIN)/cmake -S . -B $(FUZZ) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Debug \
	  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DSKBUILD_PROJECT_NAME=envfleet \
	  -DCMAKE_CXX_FLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
	$(BIN)/cmake --build $(FUZZ)
	set -e; for program in $(filter-out tests/fuzz/test_%,$(wildcard tests/fuzz/*.py)); do echo "$$program"; \
	  $(FUZZ_RUN) $(BIN)/python -W ignore tests/sanitized.py $(FUZZ) $$program --seconds $(SECONDS) --seed $(SEED); done

# What needs NumPy's random numbers is linked with those of NumPy's package for that machine.
AARCH64 := build/aarch64
AARCH64_NUMPY = $(AARCH64)/numpy/numpy/_core/include

aarch64: setup
	@command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64 > /dev/null || { \
	  echo "This needs a cross-compiler and an emulator: apt-get install g++-aarch64-linux-gnu qemu-user"; exit 1; }
	mkdir -p $(AARCH64)
	$(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --platform manylinux_2_27_aarch64 \
	  --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 --dest $(AARCH64) \
	  "numpy==$$($(BIN)/python -c 'import numpy; print(numpy.__version__)')"
	$(BIN)/python -m zipfile -e $(AARCH64)/numpy-*aarch64.whl $(AARCH64)/numpy
	set -e; for name in $(CPP_TESTS); do \
	  aarch64-linux-gnu-g++ -std=c++20 -O1 -Wall -Wextra -Werror -Wno-psabi -ffp-contract=off -Icpp -isystem $(AARCH64_NUMPY) -pthread \
	    -static cpp/tests/$$name.cpp $(AARCH64)/numpy/numpy/random/lib/libnpyrandom.a -o $(AARCH64)/$$name; \
	  timeout 300 qemu-aarch64 $(AARCH64)/$$name; echo "$$name: passes on aarch64"; \
	done

aarch64-wheel: setup
	$(BIN)/python release/aarch64.py

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CPP_SOURCES)

# Peers get environments of their own below build/peers; this is what our own engines need for all workloads.
$(VENV)/.bench: $(VENV)/.installed
	$(INSTALL) --no-build-isolation --editable ".[bench]" -c constraints.txt
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/adapters.py --publish
	$(BIN)/python benchmarks/device.py --publish

bench-quick: $(VENV)/.bench
	$(BIN)/python benchmarks/bench.py --quick --output build/bench

bench-compare: setup
	$(BIN)/python benchmarks/compare.py $(or $(BASE),$(error say what to compare with: make bench-compare BASE=main))

bench-learning: setup
	$(BIN)/python benchmarks/learning/run.py --parallel 2

bench-training: setup
	$(BIN)/python benchmarks/training_speed.py --publish

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
