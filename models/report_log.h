/* report_log.h -- what a training run wrote down, read back from its log.jsonl: one JSON object a line.
 *
 *   {"event":"start","time":1794752647.2,"model":"mamba","parameters":123456,"device":"cpu","steps":1000, ..}
 *   {"event":"step","step":10,"tokens":40960,"seconds":1.25,"loss":4.1,"lr":3e-4,"grad_norm":1.2,"tokens_per_s":32000}
 *   {"event":"eval","step":100,"val_loss":3.2,"bits_per_byte":4.6}         {"event":"sample","step":100,"text":".."}
 *   {"event":"skipped","step":120,"why":".."}                            {"event":"save","step":200,"path":".."}
 *   {"event":"resume","step":200}                                          {"event":"end","step":1000,"why":"done"}
 *
 * Unknown events and members mean nothing; a number that is missing, null or no number is NaN. A resume at step S takes
 * back what was logged after S; of two records of one step the later one counts. */
#ifndef MODELS_REPORT_LOG_H
#define MODELS_REPORT_LOG_H
#include <stddef.h>
#include <stdint.h>

#include "../util/json.h"

typedef enum { LOG_STEP, LOG_EVAL, LOG_SAMPLE, LOG_SKIPPED, LOG_SAVE, LOG_RESUME, LOG_END, LOG_EVENTS } log_event;

typedef enum {
  LOG_TOKENS,
  LOG_SECONDS, /* of the whole run: a clock that began again at a resume is carried on */
  LOG_LOSS,
  LOG_LR,
  LOG_GRAD_NORM,
  LOG_TOKENS_PER_S,
  LOG_VAL_LOSS,
  LOG_BITS_PER_BYTE,
  LOG_VALUES
} log_value;

typedef struct {
  int64_t step;
  double value[LOG_VALUES];
  char *text; /* sample: its text; skipped, end: why; save: path; NULL: none */
  size_t length;
} log_record;

typedef struct {
  log_record *at; /* by step, each step once */
  size_t count, room;
} log_list;

typedef struct {
  log_list list[LOG_EVENTS];
  json_doc *start;  /* the last start's line; NULL: none */
  int64_t good;     /* lines that are a JSON object */
  int64_t bad;      /* lines that are none, but for a torn last one */
  int64_t bad_line; /* the first that is none, from 1 */
  double clock;     /* seconds before the clock last began again */
} run_log;

/* 1, or 0 after a failure (a log of which no line can be read is one), when err says why and there is nothing to free.
 */
int run_log_read(run_log *log, const char *path, char *err, size_t n);
void run_log_free(run_log *log);

#endif
