/* status.c -- each thread's last error sentence, and names of things. */
#include <stdarg.h>
#include <stdio.h>

#include "core/core.h"

static _Thread_local char message[ERROR_BYTES] = "no error";

const char *ambi_error(void) { return message; }
uint32_t ambi_version(void) { return AMBI_VERSION; }

const char *ambi_status_name(ambi_status s) {
  static const char *const names[] = {
      "ok", "invalid", "unsupported", "no memory", "no device", "compile failed", "device lost", "denied", "timeout"};
  return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown status";
}

ambi_status fail(ambi_status s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return s;
}

static const char *slot_name(const problem *p, int slot) {
  int primal = slot % AMBI_MAX_PRIMALS;
  return primal < p->def->info.slots ? p->def->info.slot[primal].name : "?";
}

ambi_status fail_slot(ambi_status s, const problem *p, int slot, const char *format, ...) {
  const char *d = slot >= AMBI_MAX_PRIMALS ? "gradient of " : "";
  int n = snprintf(message, sizeof message, "%s: %s%s: ", p->def->info.name, d, slot_name(p, slot));
  va_list args;
  va_start(args, format);
  vsnprintf(message + n, sizeof message - (size_t)n, format, args);
  va_end(args);
  return s;
}
