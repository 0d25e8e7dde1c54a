/* standins.h -- for tests on the stand-ins for CUDA's libraries (fakecuda), which compile kernels as C++. */
#ifndef AMBI_TEST_STANDINS_H
#define AMBI_TEST_STANDINS_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Says so, as a test's last line. */
static bool stand_ins_missing(void) {
  if (system("c++ --version > /dev/null 2>&1") == 0) return false;
  printf("SKIPPED: the stand-ins need a C++ compiler\n0 passed, 0 failed, 1 skipped\n");
  return true;
}

#endif
