/* reflect.c -- slots and attributes in words. */
#include "reflect.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "exec.h"

static void append(char *out, size_t n, const char *s) {
  size_t used = strlen(out);
  snprintf(out + used, n - used, "%s%s", used ? ", " : "", s);
}

char *reflect_flags(uint32_t flags, char *out, size_t n) {
  static const struct {
    uint32_t flag;
    const char *text;
  } rows[] = {{AMBI_SLOT_OPTIONAL, "optional"},
              {AMBI_SLOT_SAVED, "saved for backward"},
              {AMBI_SLOT_INTEGER, "integer"},
              {AMBI_SLOT_ANY_DTYPE, "any dtype"},
              {AMBI_SLOT_NO_GRAD, "no gradient"}};
  snprintf(out, n, "%s", flags & AMBI_SLOT_OUTPUT ? "output" : "input");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (flags & rows[i].flag) append(out, n, rows[i].text);
  }
  return out;
}

void reflect_slots(const ambi_op_info *op, table *t) {
  char flags[96];
  table_row(t, "slot", "shape", "role", "what it is");
  for (int s = 0; s < op->slots; s++) {
    const ambi_slot_info *i = &op->slot[s];
    table_row(t, i->name, i->shape, reflect_flags(i->flags, flags, sizeof flags), i->doc);
  }
}

const char *reflect_attr_type(const ambi_attr_info *a) {
  static const char *const names[] = {"number", "whole number", "true or false", "name"};
  return a->type >= AMBI_ATTR_F64 && a->type <= AMBI_ATTR_ENUM ? names[a->type] : "unknown";
}

static void default_text(const ambi_attr_info *a, char *out, size_t n) {
  if (a->type == AMBI_ATTR_BOOL) {
    snprintf(out, n, "%s", a->def != 0 ? "true" : "false");
    return;
  }
  snprintf(out, n, "%g", a->def);
  if (a->type != AMBI_ATTR_ENUM || !a->names) return;
  for (int i = 0; a->names[i]; i++) {
    if (i == (int)a->def) snprintf(out, n, "%s", a->names[i]);
  }
}

/* "0 to 1", "from 0 up", "any", or the names of an enum; without 0, where that means another default. */
static void range_text(const ambi_attr_info *a, char *out, size_t n) {
  const int whole = a->type == AMBI_ATTR_I32, no_zero = a->def != 0 && a->min <= 0 && a->max >= 0;
  const int below = a->min <= (whole ? INT32_MIN : -DBL_MAX), above = a->max >= (whole ? INT32_MAX : DBL_MAX);
  *out = 0;
  if (a->type == AMBI_ATTR_ENUM) {
    for (int i = 0; a->names && a->names[i]; i++) append(out, n, a->names[i]);
  } else if (a->type == AMBI_ATTR_BOOL) {
    snprintf(out, n, "true, false");
  } else if ((no_zero && a->min == 0) || a->min == DBL_MIN) {
    snprintf(out, n, "above 0");
    if (!above) snprintf(out, n, "above 0, to %g", a->max);
  } else if (below && above) {
    snprintf(out, n, no_zero ? "any but 0" : "any");
  } else if (above) {
    snprintf(out, n, "from %g up", a->min);
  } else if (below) {
    snprintf(out, n, "up to %g", a->max);
  } else {
    snprintf(out, n, "%g to %g", a->min, a->max);
  }
}

void reflect_attrs(const ambi_op_info *op, table *t) {
  char def[64], range[512];
  table_row(t, "attribute", "default", "what it does", "range");
  for (int i = 0; i < op->attrs; i++) {
    default_text(&op->attr[i], def, sizeof def);
    range_text(&op->attr[i], range, sizeof range);
    table_row(t, op->attr[i].name, def, op->attr[i].doc, range);
  }
}

char *reflect_in_place(ambi_kind kind, char *out, size_t n) {
  const ambi_op op = {.kind = kind};
  *out = 0;
  for (const int8_t(*pair)[2] = ambi_op_get_info(kind)->in_place; pair && (*pair)[0] >= 0; pair++) {
    char a[40], b[40], text[96];
    snprintf(text, sizeof text, "%s over %s", slot_name(&op, (*pair)[0], a, sizeof a),
             slot_name(&op, (*pair)[1], b, sizeof b));
    append(out, n, text);
  }
  return out;
}
