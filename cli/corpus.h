/* corpus.h -- the project's own sources and documents, inside the program: something to learn that is always there. */
#ifndef CLI_CORPUS_H
#define CLI_CORPUS_H
#include <stddef.h>

/* Files one after the other, a NUL behind each. */
const char *corpus_text(size_t *bytes);

#endif
