/* switch.h -- from one stack to another: a dozen instructions on x86-64, ucontext elsewhere (which calls the system).
 */
#ifndef FAKECUDA_SWITCH_H
#define FAKECUDA_SWITCH_H
#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
typedef struct {
  void **top; /* where the registers a call preserves were pushed */
} fiber_context;

/* Arguments in rdi and rsi. Not a C function: no compiler may conclude anything from its body. */
__attribute__((visibility("hidden"))) void fiber_switch(fiber_context *from, fiber_context *to);
__asm__(
    ".text\n .hidden fiber_switch\n .globl fiber_switch\n .type fiber_switch, @function\n fiber_switch:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov (%rsi), %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    ".size fiber_switch, .-fiber_switch");

/* The first switch pops six registers and returns into `entry`, as if that had been called from nowhere. */
static void fiber_prepare(fiber_context *c, char *stack, size_t bytes, void (*entry)(void)) {
  void **top = (void **)(((uintptr_t)stack + bytes) & ~(uintptr_t)15);
  *--top = NULL;
  *--top = (void *)(uintptr_t)entry;
  for (int i = 0; i < 6; i++) *--top = NULL;
  c->top = top;
}
#else
#include <ucontext.h>
typedef struct {
  ucontext_t at;
} fiber_context;

static void fiber_switch(fiber_context *from, fiber_context *to) { swapcontext(&from->at, &to->at); }

static void fiber_prepare(fiber_context *c, char *stack, size_t bytes, void (*entry)(void)) {
  getcontext(&c->at);
  c->at.uc_stack.ss_sp = stack;
  c->at.uc_stack.ss_size = bytes;
  c->at.uc_link = NULL;
  makecontext(&c->at, entry, 0);
}
#endif

#endif
