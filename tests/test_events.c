/* test_events.c -- events, and runs given together, on the devices that every build has; `test_events cuda:0`: on a
 * GPU. */
#include "event_checks.h"
#include "together_checks.h"

int main(int argc, char **argv) {
  static char *usual[] = {NULL, "cpu", "ref", NULL};
  ambi_device *other = NULL;
  if (!CHECK_OK(ambi_device_open("ref", NULL, &other))) return test_done();
  for (char **name = argc > 1 ? argv : usual; *++name;) {
    ambi_device *dev = NULL;
    if (!CHECK_OK(ambi_device_open(*name, NULL, &dev))) continue;
    check_events(dev, other);
    check_together(dev, other);
    ambi_device_close(dev);
  }
  ambi_device_close(other);
  return test_done();
}
