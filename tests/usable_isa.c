/* usable_isa NAME -- ends in 0 when this machine runs kernels of that instruction set. */
#include <ambi/ambi.h>
#include <string.h>

int main(int argc, char **argv) {
  ambi_device_options o = {.threads = 1, .max_isa = argc > 1 ? argv[1] : ""};
  ambi_device_info info;
  ambi_device *dev;
  if (ambi_device_open("cpu", &o, &dev) != AMBI_OK || ambi_device_get_info(dev, &info) != AMBI_OK) return 1;
  int usable = strcmp(info.isa, o.max_isa) == 0;
  ambi_device_close(dev);
  return !usable;
}
