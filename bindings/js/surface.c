/* surface.c -- where the fields of the public structs lie, by name, so that JavaScript need not assume it. */
#include <ambi/ambi.h>

typedef struct {
  const char *name;
  uint32_t value;
} entry;

#define SIZE(type)         {#type, sizeof(type)},
#define FIELD(type, field) {#type "." #field, offsetof(type, field)},

static const entry layout[] = {
    {"AMBI_MAX_DIMS", AMBI_MAX_DIMS},
    {"AMBI_MAX_PRIMALS", AMBI_MAX_PRIMALS},
    {"AMBI_KINDS", AMBI_KINDS},
    /* clang-format off */
    SIZE(ambi_tensor)
    FIELD(ambi_tensor, dtype) FIELD(ambi_tensor, ndim) FIELD(ambi_tensor, shape) FIELD(ambi_tensor, stride)
    SIZE(ambi_buf)
    FIELD(ambi_buf, data) FIELD(ambi_buf, offset)
    SIZE(ambi_op)
    FIELD(ambi_op, kind) FIELD(ambi_op, pass) FIELD(ambi_op, want) FIELD(ambi_op, accumulate)
    FIELD(ambi_op, t) FIELD(ambi_op, grad)
    SIZE(ambi_device_options) FIELD(ambi_device_options, threads)
    SIZE(ambi_device_info)
    FIELD(ambi_device_info, name) FIELD(ambi_device_info, isa) FIELD(ambi_device_info, threads)
    SIZE(ambi_plan_info)
    FIELD(ambi_plan_info, kernel) FIELD(ambi_plan_info, workspace) FIELD(ambi_plan_info, reads)
    FIELD(ambi_plan_info, writes) FIELD(ambi_plan_info, flops) FIELD(ambi_plan_info, bytes)
    FIELD(ambi_plan_info, accumulator) FIELD(ambi_plan_info, deterministic)
    FIELD(ambi_op_info, name) FIELD(ambi_op_info, formula) FIELD(ambi_op_info, gradient) FIELD(ambi_op_info, doc)
    FIELD(ambi_op_info, slots) FIELD(ambi_op_info, attrs) FIELD(ambi_op_info, slot) FIELD(ambi_op_info, attr)
    FIELD(ambi_op_info, backward) FIELD(ambi_op_info, in_place)
    SIZE(ambi_slot_info)
    FIELD(ambi_slot_info, name) FIELD(ambi_slot_info, shape) FIELD(ambi_slot_info, doc) FIELD(ambi_slot_info, flags)
    SIZE(ambi_attr_info)
    FIELD(ambi_attr_info, name) FIELD(ambi_attr_info, doc) FIELD(ambi_attr_info, type) FIELD(ambi_attr_info, offset)
    FIELD(ambi_attr_info, def) FIELD(ambi_attr_info, min) FIELD(ambi_attr_info, max) FIELD(ambi_attr_info, names)
    /* clang-format on */
    {NULL, 0}};

AMBI_API const entry *ambi_js_layout(void); /* ends in an entry without a name */
const entry *ambi_js_layout(void) { return layout; }
