/* wasmtime.c -- Wasmtime's shared library: from AMBI_WASMTIME or from the system. */
#include "pack/wasmtime.h"

#include <stdio.h>
#include <string.h>

#include "pack/library.h"

ambi_status wasmtime_load(wasmtime_api *w) {
  static const char *const names[] = {"libwasmtime.so", NULL};
  static const char *const symbols[] = {
#define X(result, name, arguments) #name,
      WASMTIME_FUNCTIONS(X)
#undef X
  };
  void **const targets[] = {
#define X(result, name, arguments) (void **)(void *)&w->name,
      WASMTIME_FUNCTIONS(X)
#undef X
  };
  library_request r = {"Wasmtime",
                       "AMBI_WASMTIME",
                       "`pip install wasmtime` brings it, see docs/packs.md",
                       names,
                       symbols,
                       targets,
                       sizeof symbols / sizeof *symbols};
  return library_load(&r, &w->library);
}

void plain_text(char *text) {
  for (char *c = text; *c; c++) {
    bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0;
    if (c1) *c++ = ' '; /* U+0080 to U+009F: U+009B does what ESC [ does */
    if (c1 || (unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
  }
}

ambi_status wasmtime_failed(const wasmtime_api *w, ambi_status s, const char *what, wasmtime_error *e, wasm_trap *t) {
  static const char *const traps[] = {"the stack overflowed",
                                      "an access out of bounds of its memory",
                                      "a misaligned access",
                                      "an access out of bounds of a table",
                                      "a call of nothing through a table",
                                      "a call of another type through a table",
                                      "an integer overflow",
                                      "an integer divided by zero",
                                      "a conversion that no integer can hold",
                                      "unreachable code was reached",
                                      "it was stopped at its deadline"};
  wasm_vec m = {0};
  char text[256] = "no reason given";
  uint8_t code = UINT8_MAX;
  if (t && w->wasmtime_trap_code(t, &code) && code == TRAP_INTERRUPT) s = AMBI_TIMEOUT;
  if (e)
    w->wasmtime_error_message(e, &m);
  else if (code < sizeof traps / sizeof *traps)
    snprintf(text, sizeof text, "%s", traps[code]);
  else if (t)
    w->wasm_trap_message(t, &m);
  if (m.size) {
    size_t n = m.size < sizeof text - 1 ? m.size : sizeof text - 1;
    memcpy(text, m.data, n);
    text[n] = 0;
    plain_text(text);
    w->wasm_byte_vec_delete(&m);
  }
  if (e) w->wasmtime_error_delete(e);
  if (t) w->wasm_trap_delete(t);
  return fail(s, "%s: %s", what, text);
}
