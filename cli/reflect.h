/* reflect.h -- the slots and attributes of an op in words, for `ambi info` and `ambi docs`. */
#ifndef CLI_REFLECT_H
#define CLI_REFLECT_H
#include <ambi/ambi.h>

#include "print.h"

/* Fill tables of four columns, a heading first. */
void reflect_slots(const ambi_op_info *op, table *t);
void reflect_attrs(const ambi_op_info *op, table *t);
/* "output, optional, saved for backward". Returns out. */
char *reflect_flags(uint32_t flags, char *out, size_t n);
/* "number", "whole number", "true or false", "name". */
const char *reflect_attr_type(const ambi_attr_info *a);
/* "y over x, dx over dy". Returns out. */
char *reflect_in_place(ambi_kind kind, char *out, size_t n);

#endif
