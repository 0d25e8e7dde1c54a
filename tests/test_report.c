/* test_report.c -- the page about a run: what it says, what it survives, and that it is well-formed HTML. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../models/report.h"
#include "../models/report_parts.h"
#include "../util/files.h"
#include "test.h"

static char folder[] = "/tmp/ambi-report-XXXXXX";
static char err[400], warning[400]; /* warning: of the last report_of */

static const char *in(const char *name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void put_file(const char *name, const char *text, size_t bytes) {
  if (!file_write(in(name), text, bytes, err, sizeof err)) CHECK(false, "%s", err);
}

/* ---- well-formed ---- */

enum { DEPTH = 64, NAME = 24 };

typedef struct {
  char open[DEPTH][NAME];
  int depth;
} tags;

static int is_one_of(const char *name, const char *list) {
  char word[NAME + 2];
  snprintf(word, sizeof word, " %s ", name);
  return strstr(list, word) != NULL;
}

/* The end of the tag that begins at p: a > outside of quotes. NULL: none. */
static const char *tag_end(const char *p) {
  char quote = 0;
  for (; *p; p++) {
    if (quote ? *p == quote : *p == '"' || *p == '\'') {
      quote = quote ? 0 : *p;
    } else if (!quote && *p == '<' && p[-1] != '<') {
      return NULL;
    } else if (!quote && *p == '>') {
      return p;
    }
  }
  return NULL;
}

/* One tag at p, after '<'; returns where to go on, NULL when it is wrong. */
static const char *take_tag(tags *t, const char *p) {
  if (strncmp(p, "!--", 3) == 0) return (p = strstr(p, "-->")) ? p + 3 : NULL;
  const char *end = tag_end(p);
  if (!end) return NULL;
  if (*p == '!') return end + 1;
  int closing = *p == '/';
  char name[NAME];
  size_t length = strcspn(p + closing, " \n/>");
  if (length == 0 || length >= NAME) return NULL;
  snprintf(name, sizeof name, "%.*s", (int)length, p + closing);
  if (closing) return t->depth > 0 && strcmp(t->open[--t->depth], name) == 0 ? end + 1 : NULL;
  if (end[-1] == '/' || is_one_of(name, " meta input br ")) return end + 1;
  if (t->depth == DEPTH) return NULL;
  memcpy(t->open[t->depth++], name, NAME);
  if (!is_one_of(name, " script style ")) return end + 1;
  char close[NAME + 4];
  snprintf(close, sizeof close, "</%s", name);
  return strstr(end, close); /* its text is not HTML */
}

/* NULL when every tag is closed in order and no & or < is bare, else where it goes wrong. */
static const char *malformed(const char *html) {
  tags t = {.depth = 0};
  for (const char *p = html; *p;) {
    const char *at = p;
    if (*p == '<') {
      if (!(p = take_tag(&t, p + 1))) return at;
    } else if (*p == '&') {
      p += strcspn(p, "; <\n");
      if (*p != ';') return at;
    } else {
      p++;
    }
  }
  return t.depth ? "a tag is not closed" : NULL;
}

/* ---- reports ---- */

/* Writes the log, makes the report, and gives its text (free it); checks what every report must keep. */
static char *report_of_bytes(const char *what, const char *log, size_t log_bytes) {
  size_t bytes = 0;
  put_file("log.jsonl", log, log_bytes);
  if (!CHECK(report_write(folder, err, sizeof err), "%s: %s", what, err)) return calloc(1, 1);
  memcpy(warning, err, sizeof warning);
  char *html = file_read(in("report.html"), (size_t)1 << 24, &bytes, err, sizeof err);
  CHECK(html != NULL, "%s: %s", what, err);
  if (!html) return calloc(1, 1);
  const char *at = malformed(html);
  CHECK(!at, "%s: not well-formed at: %.80s", what, at ? at : "");
  CHECK(strlen(html) == bytes, "%s: the page holds a NUL", what);
  /* 1,802 steps of at most 130 bytes, 30 samples of 3,000, 500 evaluations of 50, and the template */
  CHECK(bytes < 400000, "%s: %zu bytes", what, bytes);
  CHECK(!strstr(html, "src=") && !strstr(html, "href=") && !strstr(html, "url("), "%s: refers to something else", what);
  CHECK(!strstr(html, "nan") && !strstr(html, "inf,") && !strstr(html, "inf "), "%s: prints what is not finite", what);
  const char *numbers = strstr(html, "id=\"numbers\">"), *end = numbers ? strstr(numbers, "</script>") : NULL;
  if (CHECK(numbers && end, "%s: no numbers for the script", what)) {
    numbers += strlen("id=\"numbers\">");
    json_doc *doc = json_parse(numbers, (size_t)(end - numbers), err, sizeof err);
    CHECK(doc != NULL, "%s: the script's numbers: %s", what, err);
    json_free(doc);
  }
  return html;
}

static char *report_of(const char *what, const char *log) { return report_of_bytes(what, log, strlen(log)); }

#define HOLDS(html, text) CHECK(strstr(html, text) != NULL, "the page lacks '%s'", text)
#define LACKS(html, text) CHECK(strstr(html, text) == NULL, "the page holds '%s'", text)
#define START                                                                                            \
  "{\"event\":\"start\",\"time\":1794752647.2,\"model\":\"mamba\",\"parameters\":123456,\"steps\":1000," \
  "\"files\":12,\"command\":\"ambi train <a> & b\"}\n"
#define STEP(step, loss)                                                                    \
  "{\"event\":\"step\",\"step\":" #step ",\"tokens\":40960,\"seconds\":1.5,\"loss\":" #loss \
  ",\"lr\":0.0003,\"grad_norm\":1.2,\"tokens_per_s\":32000}\n"

static void test_ordinary(void) {
  char *html = report_of("an ordinary run", START STEP(10, 4.25) STEP(20, 3.5)
                         "{\"event\":\"eval\",\"step\":20,\"val_loss\":3.2,\"bits_per_byte\":4.617}\n"
                         "{\"event\":\"skipped\",\"step\":12,\"why\":\"a <b> gradient\"}\n"
                         "{\"event\":\"save\",\"step\":20,\"path\":\"checkpoint-20\"}\n"
                         "{\"event\":\"sample\",\"step\":20,\"text\":\"\\n two  spaces\"}\n"
                         "{\"event\":\"end\",\"step\":20,\"seconds\":90,\"why\":\"done\"}\n");
  HOLDS(html, "<h1>mamba</h1>");
  HOLDS(html, "Finished at step 20.");
  HOLDS(html, "<strong>3.5</strong>");
  HOLDS(html, "<strong>4.617</strong>");
  HOLDS(html, "<strong>32,000</strong>");
  HOLDS(html, "<strong>1 min 30 s</strong>");
  HOLDS(html, "123,456 parameters");
  HOLDS(html, "2026-11-15 14:24 UTC");
  HOLDS(html, "ambi train &#60;a&#62; &#38; b");
  HOLDS(html, "a &#60;b&#62; gradient");
  HOLDS(html, "<pre>\n\n two  spaces</pre>");
  HOLDS(html, "[10,40960,1.5,4.25,4.25,0.0003,1.2,32000]");
  HOLDS(html, "\"evals\":[[20,3.2,4.617]]");
  HOLDS(html, "class=\"skip\"");
  HOLDS(html, "checkpoint-20");
  LACKS(html, "{{");
  free(html);
}

static void test_little(void) {
  char *html = report_of("an empty log", "");
  HOLDS(html, "No step has been logged yet.");
  HOLDS(html, "Unfinished");
  free(html);
  html = report_of("only a start", START);
  HOLDS(html, "the log ends at step 0 of 1,000");
  free(html);
  html = report_of("one step", START STEP(7, 2.5));
  HOLDS(html, "this run was not evaluated");
  HOLDS(html, "the log ends at step 7 of 1,000");
  free(html);
  html = report_of("evaluations alone", "{\"event\":\"eval\",\"step\":5,\"val_loss\":2}\n");
  HOLDS(html, "Validation loss");
  free(html);
  html = report_of("stopped", STEP(7, 2.5) "{\"event\":\"end\",\"step\":7,\"why\":\"out of memory\"}\n");
  HOLDS(html, "Stopped at step 7: out of memory.");
  free(html);
}

static void test_broken_lines(void) {
  char *html = report_of("a torn last line", START STEP(1, 2) "{\"event\":\"step\",\"st");
  HOLDS(html, "[1,40960");
  LACKS(html, "could not be read");
  CHECK(!*warning, "a torn last line: %s", warning);
  free(html);
  html = report_of("a whole last line without newline", STEP(1, 2) "{\"event\":\"step\",\"step\":2,\"loss\":1.75}");
  HOLDS(html, "[2,null,null,1.75,1.75,null,null,null]");
  free(html);
  html = report_of("malformed lines", STEP(1, 2) "{\"event\":\"step\",\n[1]\n\r\n" STEP(2, 2) "\xff\n" STEP(3, 2));
  HOLDS(html, "could not be read: 3, the first is line 2.");
  CHECK(strstr(warning, "no JSON objects were left out: 3, the first is line 2"), "the warning is '%s'", warning);
  HOLDS(html, "[3,40960");
  free(html);
  static const char nul[] = STEP(1, 2) "a\0b\n" STEP(2, 2);
  html = report_of_bytes("a NUL", nul, sizeof nul - 1);
  HOLDS(html, "could not be read: 1,");
  free(html);
  html = report_of(
      "strange members",
      "{}\n{\"event\":7}\n{\"event\":\"other\"}\n{\"event\":\"start\",\"model\":[],\"steps\":{}}\n"
      "{\"event\":\"step\",\"step\":\"x\",\"loss\":[1]}\n{\"event\":\"sample\",\"text\":7}\n{\"event\":\"end\"}\n");
  LACKS(html, "could not be read");
  free(html);
}

static void test_escapes(void) {
  char *html = report_of("anything in texts", STEP(1, 2)
                         "{\"event\":\"sample\",\"step\":1,\"text\":\"</pre><script>alert(1)</script> & {{rows}} \\u0000\\u001b[1m\\r"
                         "\\u007f\\u0085 \\ud83d\\ude00 \\\"'\"}\n"
                         "{\"event\":\"end\",\"step\":1,\"why\":\"<img onerror=x>\"}\n");
  LACKS(html, "<script>alert");
  LACKS(html, "<img");
  HOLDS(
      html,
      "&#60;/pre&#62;&#60;script&#62;alert(1)&#60;/script&#62; &#38; {{rows}} &#9216;&#9243;[1m&#9229;&#9249;&#65533;");
  HOLDS(html, "\xf0\x9f\x98\x80 &#34;&#39;</pre>");
  free(html);
}

static void test_values(void) {
  char *html = report_of("losses that are not finite", STEP(1, 4) STEP(2, null) STEP(3, null) STEP(4, 3.5));
  HOLDS(html, "not finite: 2, the first at step 2");
  HOLDS(html, "[2,40960,1.5,null");
  free(html);
  html = report_of("only such", STEP(1, null) STEP(2, null));
  HOLDS(html, "<strong>not finite</strong>");
  HOLDS(html, "Nothing was logged that could be drawn.");
  free(html);
  free(report_of(
      "huge and tiny values",
      "{\"event\":\"start\",\"time\":1e300,\"steps\":1e300,\"parameters\":-1e308,\"lr\":4e-320}\n" STEP(1, 1e308)
          STEP(2, -1e308) STEP(9223372036854775807, 4e-320) STEP(-9223372036854775808, 0) STEP(
              1e300,
              1) "{\"event\":\"step\",\"step\":3,\"seconds\":1e308,\"tokens\":1e308,\"lr\":-1e308,\"grad_norm\":1e308,"
                 "\"tokens_per_s\":1e308}\n"
                 "{\"event\":\"step\",\"step\":4,\"seconds\":-1e308,\"lr\":1e308,\"grad_norm\":4e-320,\"tokens_per_s\":"
                 "0}\n"
                 "{\"event\":\"eval\",\"step\":4,\"val_loss\":1e308,\"bits_per_byte\":-1e308}\n"
                 "{\"event\":\"end\",\"step\":4,\"seconds\":1e308}\n"));
  free(report_of("both ends of f64",
                 "{\"event\":\"step\",\"step\":1,\"lr\":4e-320,\"grad_norm\":1e-308}\n"
                 "{\"event\":\"step\",\"step\":2,\"lr\":5e-320,\"grad_norm\":1e-308}\n"));
  free(report_of("one tiny value", STEP(1, 4e-320)));
  free(report_of("zero", "{\"event\":\"step\",\"step\":0,\"loss\":0,\"lr\":0,\"grad_norm\":0,\"tokens_per_s\":0}\n"));
  free(report_of("the same value", STEP(1, 2.5) STEP(2, 2.5)));
}

static void test_resume(void) {
  char *html = report_of("a resumed run", STEP(10, 4) STEP(20, 3) STEP(30, 9)
                         "{\"event\":\"sample\",\"step\":30,\"text\":\"given up\"}\n"
                         "{\"event\":\"end\",\"step\":30,\"why\":\"crash\"}\n"
                         "{\"event\":\"resume\",\"step\":20}\n"
                         "{\"event\":\"step\",\"step\":25,\"seconds\":0.5,\"loss\":2.75}\n");
  LACKS(html, "[30,");
  LACKS(html, "given up");
  HOLDS(html, "Unfinished: the log ends at step 25");
  HOLDS(html, "[25,null,2,2.75"); /* 1.5 seconds before the resume */
  HOLDS(html, "class=\"resume\"");
  free(html);
  html = report_of("steps out of order and twice", STEP(30, 1) STEP(10, 4) STEP(20, 3) STEP(10, 5));
  const char *ten = strstr(html, "[10,40960,1.5,5,"), *thirty = strstr(html, "[30,40960,1.5,1,");
  CHECK(ten && thirty && ten < thirty, "steps are not in order, or the earlier of two was kept");
  LACKS(html, "[10,40960,1.5,4,");
  free(html);
}

/* 100,000 steps with one spike: the page stays small and shows the spike. */
static void test_many(void) {
  enum { STEPS = 100000, LINE = 160 };
  char *log = malloc((size_t)STEPS * LINE + 1 + 2000 * 6000);
  size_t used = 0;
  CHECK(log != NULL, "out of memory");
  if (!log) return;
  for (int s = 1; s <= STEPS; s++) {
    double loss = s == 54321 ? 77.5 : 1 + 4 * exp(-s / 2e4) + 0.1 * sin(s * 12.9898);
    used +=
        (size_t)snprintf(log + used, LINE,
                         "{\"event\":\"step\",\"step\":%d,\"tokens\":%d,\"seconds\":%.3f,\"loss\":%.6f,\"lr\":0.001,"
                         "\"grad_norm\":%.5f,\"tokens_per_s\":%.1f}\n",
                         s, s * 4096, s * 0.1, loss, 1 + 0.5 * cos(s * 78.233), 32000 + 500 * sin(s * 3.7));
    if (s % 100 == 0)
      used += (size_t)snprintf(log + used, 6000, "{\"event\":\"sample\",\"step\":%d,\"text\":\"%05000d\"}\n", s, s);
    if (s % 50 == 0)
      used += (size_t)snprintf(log + used, LINE, "{\"event\":\"skipped\",\"step\":%d,\"why\":\"x\"}\n", s);
    if (s % 50 == 0) used += (size_t)snprintf(log + used, LINE, "{\"event\":\"eval\",\"step\":%d,\"val_loss\":2}\n", s);
  }
  char *html = report_of_bytes("100,000 steps", log, used);
  HOLDS(html, "of 100,000 logged steps");
  HOLDS(html, "[54321,222498816,5432.1,77.5,");
  HOLDS(html, "[1,4096,");
  HOLDS(html, "[100000,409600000,");
  HOLDS(html, "drawn at its top: 1.");
  HOLDS(html, "30 of 1000, evenly chosen.");
  HOLDS(html, "The first 3000 bytes of 5000.");
  free(html);
  free(log);
}

static void test_config(void) {
  static const char good[] = "{\"layers\":8,\"optimizer\":{\"beta\":[0.9,0.95],\"<k>\":true},\"none\":null}";
  put_file("config.json", good, sizeof good - 1);
  char *html = report_of("a configuration", START);
  HOLDS(html, "<th scope=\"row\">layers</th><td>8</td>");
  HOLDS(html, "<th scope=\"row\">optimizer.beta</th><td>0.9, 0.95</td>");
  HOLDS(html, "optimizer.&#60;k&#62;</th><td>yes</td>");
  free(html);
  put_file("config.json", "{\"layers\":", 10);
  html = report_of("a broken configuration", START);
  HOLDS(html, "config.json could not be read");
  free(html);
  unlink(in("config.json"));
}

/* ---- failures ---- */

/* 1 when an older report and nothing half-written is there. */
static int only_the_old(void) {
  char part[64];
  snprintf(part, sizeof part, "report.html.%ld.part", (long)getpid());
  return access(in("report.html"), F_OK) == 0 && access(in(part), F_OK) != 0;
}

/* Permissions do not bind root: a child gives them up. */
static void test_read_only(void) {
  int status = -1;
  chmod(folder, 0555);
  pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    _exit(!report_write(folder, err, sizeof err) && strstr(err, "report.html: Permission denied") ? 0 : 1);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "the child ended badly");
  if (WEXITSTATUS(status) == 2) {
    test_skip("a folder that may not be written", "root could not be given up");
  } else {
    CHECK(WEXITSTATUS(status) == 0, "a read-only folder");
  }
  chmod(folder, 0700);
  CHECK(only_the_old(), "a read-only folder: not as it was");
}

/* A disk that is full after 4096 bytes. */
static void test_full(void) {
  struct rlimit old, little;
  if (getrlimit(RLIMIT_FSIZE, &old) != 0) return;
  little = old;
  little.rlim_cur = 4096;
  signal(SIGXFSZ, SIG_IGN);
  CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0, "setrlimit");
  CHECK(!report_write(folder, err, sizeof err) && strstr(err, "report.html"), "a full disk: %s", err);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_DFL);
  CHECK(only_the_old(), "a full disk: not as it was");
}

/* The page of a run is not replaced by one about nothing. */
static void test_garbage(void) {
  static const char *const logs[] = {"garbage\n", "\n[1]\ngarbage", "{\"event\":\"st"};
  static const char *const lines[] = {"log.jsonl: line 1 is no JSON", "log.jsonl: line 2 is no JSON",
                                      "log.jsonl: line 1 is no JSON"};
  size_t bytes;
  free(report_of("a good log", START STEP(7, 2.5)));
  for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
    put_file("log.jsonl", logs[i], strlen(logs[i]));
    CHECK(!report_write(folder, err, sizeof err) && strstr(err, lines[i]), "'%s': %s", logs[i], err);
  }
  char *html = file_read(in("report.html"), (size_t)1 << 24, &bytes, err, sizeof err);
  CHECK(html && strstr(html, "the log ends at step 7 of 1,000"), "a log of garbage: the page is another");
  free(html);
}

static void test_failures(void) {
  CHECK(!report_write(in("no/such/folder"), err, sizeof err) && strstr(err, "log.jsonl"), "a missing folder: %s", err);
  CHECK(!report_write("", err, sizeof err), "an empty name");
  CHECK(!report_write(in("no/such/folder"), NULL, 0), "nowhere to say why");
  char small[8];
  CHECK(!report_write(in("no/such/folder"), small, sizeof small) && strlen(small) < sizeof small, "a short message");
  put_file("log.jsonl", START, strlen(START));
  unlink(in("report.html"));
  CHECK(mkdir(in("report.html"), 0777) == 0 && mkdir(in("report.html/x"), 0777) == 0, "mkdir");
  CHECK(!report_write(folder, err, sizeof err) && strstr(err, "report.html"), "a folder in the report's place: %s",
        err);
  rmdir(in("report.html/x"));
  rmdir(in("report.html"));
  CHECK(report_write(folder, err, sizeof err), "%s", err);
  test_read_only();
  test_full();
}

/* Bytes changed, dropped and doubled anywhere: some report, or a sentence. */
static void test_damaged(void) {
  static const char log[] = START STEP(10, 4.25) STEP(20, 3.5) "{\"event\":\"eval\",\"step\":20,\"val_loss\":3.2}\n"
      "{\"event\":\"resume\",\"step\":10}\n" STEP(15, 3) "{\"event\":\"sample\",\"step\":20,\"text\":\"<&>\"}\n";
  char damaged[2 * sizeof log];
  unsigned state = 12345;
  for (int round = 0; round < 100; round++) {
    size_t n = 0;
    for (size_t i = 0; i + 1 < sizeof log; i++) {
      state = state * 1664525u + 1013904223u;
      unsigned dice = (state >> 16) % 200;
      if (dice == 0) continue;
      damaged[n++] = dice == 1 ? (char)(state >> 24) : dice == 2 ? "0\"{}9eE-.\n"[(state >> 24) % 10] : log[i];
      if (dice == 3) damaged[n++] = log[i];
    }
    put_file("log.jsonl", damaged, n);
    if (report_write(folder, err, sizeof err))
      free(report_of_bytes("a damaged log", damaged, n));
    else
      CHECK(strstr(err, "is no JSON object"), "a damaged log: %s", err);
  }
}

/* ---- axes and numbers ---- */

static void test_axes(void) {
  char text[SHORT_TEXT];
  axis a = axis_linear(0, 5000, 5);
  CHECK(a.ticks == 6 && a.tick[5] == 5000, "ticks of 0 .. 5000: %d", a.ticks);
  CHECK(!strcmp(axis_label(&a, 1000, text), "1000"), "%s", text);
  a = axis_linear(0, 100000, 5);
  CHECK(!strcmp(axis_label(&a, 20000, text), "20k"), "%s", text);
  a = axis_linear(1.4, 2.4, 5);
  CHECK(a.ticks == 6 && !strcmp(axis_label(&a, a.tick[0], text), "1.4"), "%d ticks from %s", a.ticks, text);
  a = axis_linear(0, 3e-4, 5);
  CHECK(!strcmp(axis_label(&a, 1e-4, text), "0.0001"), "%s", text);
  a = axis_log(0.3, 40);
  CHECK(a.lo == 0.2 && a.hi == 50 && a.ticks == 8, "%g .. %g, %d ticks", a.lo, a.hi, a.ticks);
  a = axis_log(1e-9, 1e9);
  CHECK(a.ticks == 7 && fabs(axis_at(&a, 1) - 0.5) < 1e-12, "%d ticks, 1 at %g", a.ticks, axis_at(&a, 1));
  CHECK(!strcmp(text_count(text, 1234567), "1,234,567") && !strcmp(text_count(text, -999), "-999"), "%s", text);
  CHECK(!strcmp(text_number(text, 3e-5), "3e-5") && !strcmp(text_number(text, 2.5e12), "2.5e12"), "%s", text);
  CHECK(!strcmp(text_duration(text, 59.96), "60 s") && !strcmp(text_duration(text, 3599.7), "1 h 0 min"), "%s", text);
  CHECK(!strcmp(text_duration(text, 12.34), "12 s") && !strcmp(text_duration(text, 93784), "1 d 2 h"), "%s", text);
}

/* The checker itself must see what is wrong. */
static void test_checker(void) {
  static const char *const bad[] = {"<p>", "<p></b>", "<p><b></p></b>", "a & b", "<p a=\"", "<ul <li>", "</p>"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(malformed(bad[i]) != NULL, "passes: %s", bad[i]);
  CHECK(!malformed("<p a=\"<\">&#38;<meta x><path/></p><script>a && b</script>"), "refuses what is right");
}

int main(void) {
  if (!mkdtemp(folder)) {
    perror(folder);
    return 1;
  }
  test_checker();
  test_axes();
  test_ordinary();
  test_little();
  test_broken_lines();
  test_escapes();
  test_values();
  test_resume();
  test_many();
  test_config();
  test_damaged();
  test_garbage();
  test_failures();
  unlink(in("log.jsonl"));
  unlink(in("report.html"));
  CHECK(rmdir(folder) == 0, "something was left in %s", folder);
  return test_done();
}
