/* corpus.c -- the assembler includes the file that cmake/corpus.cmake made; CORPUS names it. */
#include "corpus.h"

__asm__(
    ".section .rodata\n"
    "ambi_corpus_begin:\n"
    ".incbin \"" CORPUS
    "\"\n"
    "ambi_corpus_end:\n"
    ".byte 0\n"
    ".text\n");

extern const char ambi_corpus_begin[], ambi_corpus_end[];

const char *corpus_text(size_t *bytes) {
  *bytes = (size_t)(ambi_corpus_end - ambi_corpus_begin);
  return ambi_corpus_begin;
}
