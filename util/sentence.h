/* sentence.h -- room for a sentence that says what was wrong: ambi_error()'s have fewer than 640 letters, and what was
 * being done may stand before one. */
#ifndef UTIL_SENTENCE_H
#define UTIL_SENTENCE_H

enum { SENTENCE_BYTES = 720 };

#endif
