/* fuzz_checkpoint.c -- the files of a run, with bytes changed: each is read as `ambi train --resume` reads it, and is
 * refused with a reason or gives a model. Whatever is accepted must run.
 *
 *   fuzz_checkpoint [SEED [COUNT]] */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli/run_file.h"
#include "../models/checkpoint.h"
#include "../models/training.h"
#include "../util/files.h"

enum { BATCH = 1, LENGTH = 8, PATH = 128 };
static const char *const files[] = {"config.json", "model.safetensors", "optimizer.safetensors", "training.json",
                                    "run.json"};
enum { FILES = sizeof files / sizeof *files };

/* In memory where that can be had: disks wait for every file that is written over. */
static char in_memory[] = "/dev/shm/ambi-fuzz-checkpoint-XXXXXX", on_disk[] = "/tmp/ambi-fuzz-checkpoint-XXXXXX";
static char *folder;
static char *original[FILES];
static size_t bytes[FILES];
static uint64_t accepted[FILES], refused[FILES];
static dice random_bits;

static uint64_t below(uint64_t n) { return dice_below(&random_bits, n); }

static void stop(const char *what, const char *why) {
  printf("FAILED %s: %s\n0 passed, 1 failed\n", what, why);
  exit(1);
}

static const char *path_of(int which) {
  static char path[PATH];
  snprintf(path, sizeof path, "%s/%s", folder, files[which]);
  return path;
}

/* ---- a run to begin with ---- */

static void write_original(model *m, const trainer *r) {
  char err[300] = "", name[PATH];
  training_options o = {.batch = BATCH, .length = LENGTH, .parts = 1, .steps = 9};
  char *text = training_options_text(&o);
  snprintf(name, sizeof name, "%s", folder);
  if (!text || !checkpoint_save(m, &r->o, 3, name, text, NULL, err, sizeof err)) stop("saving", err);
  free(text);
  const char *none[] = {"a", NULL};
  if (!run_file_write(folder, &(run_file){.dtype = "f32", .prompt = "p", .count = 99}, none, err, sizeof err))
    stop("run.json", err);
  for (int i = 0; i < FILES; i++) {
    original[i] = file_read(path_of(i), 1 << 24, &bytes[i], err, sizeof err);
    if (!original[i]) stop("reading back", err);
  }
}

/* ---- changed bytes ---- */

static const char *const pieces[] = {"0",     "-1", "9223372036854775807", "[", "]", "{", "}", "\"", "null",
                                     "1e300", "F16"};

/* Text is where most of what can go wrong lies: half of the changes are in the first 2000 bytes. */
static size_t change(char *data, size_t n, size_t room) {
  for (uint64_t edits = 1 + below(3); edits && n; edits--) {
    const size_t at = (size_t)below(below(2) && n > 2000 ? 2000 : n);
    const char *piece = pieces[below(sizeof pieces / sizeof *pieces)];
    const size_t length = strlen(piece);
    const uint64_t kind = below(5);
    if (kind == 0) data[at] = (char)below(256);
    if (kind == 1) data[at] = (char)(data[at] ^ 1 << below(8));
    if (kind == 2) n = at;
    if (kind == 3 && at + length <= n) memcpy(data + at, piece, length); /* in place: lengths still hold */
    if (kind == 4 && n + length <= room)
      memmove(data + at + length, data + at, n - at), memcpy(data + at, piece, length), n += length;
  }
  return n;
}

static void write_changed(int which) {
  static char data[1 << 16];
  if (bytes[which] > sizeof data / 2) stop(files[which], "larger than was thought");
  memcpy(data, original[which], bytes[which]);
  const size_t n = change(data, bytes[which], sizeof data);
  FILE *f = fopen(path_of(which), "wb");
  if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) stop(path_of(which), "cannot be written");
}

static void restore(int which) {
  FILE *f = fopen(path_of(which), "wb");
  if (!f || fwrite(original[which], 1, bytes[which], f) != bytes[which] || fclose(f) != 0)
    stop(path_of(which), "cannot be written");
}

/* ---- reading ---- */

/* As train.c does; 1 when everything was accepted. */
static int resume(model *m, trainer *r, char *err, size_t n) {
  model_config c;
  run_file saved = {0};
  training_options o = {0};
  int64_t step;
  int ok = run_file_resume(folder, folder, &saved, &o, err, n);
  run_file_free(&saved);
  return ok && config_read(path_of(0), &c, err, n) && checkpoint_fits(&c, folder, err, n) &&
         checkpoint_load(m, folder, err, n) && checkpoint_load_optimizer(&r->o, folder, &step, err, n);
}

static void one_round(model *m, trainer *r) {
  static const int32_t tokens[BATCH * LENGTH] = {1, 2, 3, 4, 5, 6, 7, 0};
  char err[300] = "";
  const int which = (int)below(FILES);
  write_changed(which);
  const int ok = resume(m, r, err, sizeof err);
  if (!ok && !*err) stop(files[which], "refused without a reason");
  *(ok ? &accepted[which] : &refused[which]) += 1;
  if (ok && !trainer_part(r, 0, tokens, tokens, 1e-3, err, sizeof err)) stop("a step", err);
  restore(which);
}

int main(int argc, char **argv) {
  random_bits = (dice){argc > 1 ? strtoull(argv[1], NULL, 0) : 1, 0};
  const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
  const ambi_device_options one = {.threads = 1};
  ambi_device *dev = NULL;
  model m;
  trainer r;
  char err[300];
  model_config c = config_usual(LAYER_MAMBA, 4, 1, 8);
  c.mamba.state = 2;
  const trainer_options o = {.batch = BATCH, .length = LENGTH, .optimizer = {0.9, 0.95, 1e-8, 0.1, 1, 0}};
  folder = mkdtemp(in_memory);
  if (!folder) folder = mkdtemp(on_disk);
  if (!folder || ambi_device_open("cpu", &one, &dev) != AMBI_OK) stop("beginning", ambi_error());
  if (!model_create(&m, dev, &c, AMBI_F32, MODEL_TRAINS, err, sizeof err) || !model_init(&m, 1, err, sizeof err) ||
      !trainer_create(&r, &m, &o, err, sizeof err))
    stop("beginning", err);
  write_original(&m, &r);
  if (!resume(&m, &r, err, sizeof err)) stop("unchanged files", err);
  for (uint64_t i = 0; i < count; i++) one_round(&m, &r);
  int ok = 1;
  for (int i = 0; i < FILES; i++) {
    printf("%s: %llu accepted, %llu refused\n", files[i], (unsigned long long)accepted[i],
           (unsigned long long)refused[i]);
    if (count >= 1000 && (!accepted[i] || !refused[i])) ok = 0;
    free(original[i]);
  }
  trainer_destroy(&r);
  model_destroy(&m);
  ambi_device_close(dev);
  checkpoint_remove(folder);
  printf("%llu passed, %d failed\n", (unsigned long long)count, !ok);
  return !ok;
}
