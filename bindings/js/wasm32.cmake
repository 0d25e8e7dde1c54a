# Clang and LLVM's linker for WebAssembly, with the C library of Debian's wasi-libc.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
# 14 cannot link thread-local variables with LTO; 22 makes the fastest code.
find_program(WASM_CLANG NAMES clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 REQUIRED)
find_program(WASM_LD NAMES wasm-ld-22 wasm-ld-21 wasm-ld-20 wasm-ld-19 wasm-ld-18 wasm-ld-17 wasm-ld-16 REQUIRED)
set(CMAKE_C_COMPILER ${WASM_CLANG})
set(CMAKE_C_COMPILER_TARGET wasm32-wasip1)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
# Linked by wasm-ld itself: the compiler's driver would run whatever wasm-opt it finds.
set(CMAKE_C_LINK_EXECUTABLE "${WASM_LD} <OBJECTS> -o <TARGET> <LINK_LIBRARIES> <LINK_FLAGS>")
