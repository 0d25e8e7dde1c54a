# A thin front door over CMake; `make help` lists the doors.
BUILD       ?= build
PREFIX      ?= /usr/local
JOBS        ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_FLAGS ?=
STAGES      ?=
export JOBS

.PHONY: all build test test-large demo bench docs packs js install format tidy clean help
all: build

$(BUILD)/CMakeCache.txt:
	@command -v cmake >/dev/null || { echo "cmake is missing; on Debian: apt-get install cmake gcc" >&2; exit 1; }
	cmake -S . -B $(BUILD) $(CMAKE_FLAGS)

build: $(BUILD)/CMakeCache.txt
	cmake --build $(BUILD) -j $(JOBS)

test:
	tests/run $(STAGES)

test-large: build
	$(BUILD)/tests/test_large

demo: build
	cd $(BUILD) && ./ambi train && ./ambi generate "$$(ls -td run-* | head -n 1)" "static " --tokens 300

bench: build
	$(BUILD)/ambi bench cpu

docs: build
	$(BUILD)/ambi docs $(BUILD)/docs

# Kernel packs: KEY names the secret key to sign with (`ambi pack keygen FILE` makes one).
KEY          ?=
PACK_VERSION ?= 1.0.0
packs: build
	tools/modules $(BUILD)/packs/modules
	$(BUILD)/ambi pack build $(BUILD)/packs/modules $(BUILD)/packs/ambi-kernels --version $(PACK_VERSION) $(if $(KEY),--key $(KEY))
	@$(if $(KEY),:,echo 'the pack is not signed: make packs KEY=FILE signs it')

# The library in JavaScript: $(BUILD)/js/package for npm, $(BUILD)/js/web to be served.
js:
	cmake -S bindings/js -B $(BUILD)/js -DCMAKE_TOOLCHAIN_FILE=wasm32.cmake
	cmake --build $(BUILD)/js -j $(JOBS)

# DESTDIR is read from the environment by CMake.
install: build
	DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix $(PREFIX)

format:
	tools/sources | xargs clang-format -i

tidy:
	tools/tidy

clean:
	rm -rf $(BUILD)

help:
	@echo 'make             build into $(BUILD)/'
	@echo 'make test        install what is missing, then check everything; STAGES="gcc install" for some of it'
	@echo 'make test-large  tensors past 2^31 elements (needs up to 13 GiB of memory)'
	@echo 'make demo        train a small Mamba on the sources of ambi, then let it write (two or three minutes)'
	@echo 'make bench       time every op against the limits of this machine'
	@echo 'make docs        a page per op, into $(BUILD)/docs'
	@echo 'make packs       kernel packs for WebAssembly into $(BUILD)/packs; KEY=FILE signs them'
	@echo 'make js          the library as WebAssembly, for node and browsers, into $(BUILD)/js'
	@echo 'make install     PREFIX=$(PREFIX) DESTDIR='
	@echo 'make format      clang-format every source'
	@echo 'make tidy        clang-tidy every source'
	@echo 'make clean       remove $(BUILD)/'
