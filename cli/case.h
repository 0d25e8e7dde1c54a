/* case.h -- a test case is one line of text: OP name=value ..
 *
 *   rmsnorm x=7x33 w=33 residual=7x33 eps=1e-5 cast=1
 *   selective_scan u=2x8x64 .. seq_idx=2x64:i32 softplus=true h_last
 *   unary x=7x33:bf16@40,1 function=silu dx=7x33:f32
 *
 *   slot=SHAPE[:DTYPE][@STRIDES]   SHAPE is 7x33, or () for a scalar without axes; STRIDES in elements
 *   d+slot=SHAPE..                 describes the gradient of that slot (op.grad)
 *   slot                           an optional output, by name alone: sets its bit in op.want
 *   dslot                          an input's gradient, by name alone: backward gives this one (`ambi bench`)
 *   attribute=VALUE                a number, true/false, or the name of an enum value
 *
 * Everything comes from ambi_op_get_info: no op is known here by name. */
#ifndef CLI_CASE_H
#define CLI_CASE_H
#include <ambi/ambi.h>

/* Text to a forward op; slots without a DTYPE get `dtype` (AMBI_NONE: left open; integer slots i32), without STRIDES
 * are row-major. 0, or -1 and in err a sentence that names what is wrong and lists what would be right. */
int case_parse(const char *text, ambi_dtype dtype, ambi_op *op, char *err, size_t n);

/* The parsed op in that pass: backward reads the optional outputs that the text names, as the device's forward would
 * write them, and gives the gradients that it names. AMBI_OK, or a status and ambi_error(). */
ambi_status case_set_pass(ambi_device *dev, ambi_op *op, ambi_pass pass);

/* The op as text, with every dtype and every stride that is not dense. Always ends in a NUL; returns out. */
char *case_format(const ambi_op *op, char *out, size_t n);

/* The kind of that name, AMBI_OP_NONE when there is none. */
ambi_kind case_find_op(const char *name);
/* The dtype of that name ("bf16"), AMBI_NONE when there is none. */
ambi_dtype case_find_dtype(const char *name);
/* "unary, gated, .." : the names of every op, or of every slot and attribute of one. Returns out. */
char *case_list_ops(char *out, size_t n);
char *case_list_names(const ambi_op_info *info, char *out, size_t n);

/* "7x33", or "()" . Returns out. */
char *case_format_shape(const ambi_tensor *t, char *out, size_t n);
/* 1 when t is row-major without gaps. */
int case_is_dense(const ambi_tensor *t);
/* Sets *t to a row-major description of that shape; unlike ambi_dense, dtype may be AMBI_NONE. */
void case_set_dense(ambi_tensor *t, ambi_dtype dtype);

/* The attribute of that name as the op has it (0 when the op has no such attribute). */
double case_attr(const ambi_op *op, const char *name);

#endif
