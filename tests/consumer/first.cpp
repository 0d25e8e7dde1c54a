// first.cpp -- the same from C++17.
#include <ambi/ambi.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

struct close_device {
  void operator()(ambi_device *d) const { ambi_device_close(d); }
};
struct destroy_plan {
  void operator()(ambi_plan *p) const { ambi_plan_destroy(p); }
};

int main() {
  std::vector<float> x{1, -2, 3, -4}, y(4);
  const int64_t shape[2] = {1, 4};
  const double r = 1 / std::sqrt((1 + 4 + 9 + 16) / 4.0 + 1e-6);
  ambi_device *dev = nullptr;
  ambi_plan *plan = nullptr;
  ambi_op op{};
  op.kind = AMBI_RMSNORM;
  op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_F32, 2, shape);
  ambi_buf bufs[AMBI_SLOTS] = {};
  bufs[AMBI_RMSNORM_X].data = x.data();
  bufs[AMBI_RMSNORM_Y].data = y.data();
  if (ambi_device_open("cpu", nullptr, &dev) != AMBI_OK) return std::puts(ambi_error()), 1;
  std::unique_ptr<ambi_device, close_device> device(dev);
  if (ambi_plan_create(dev, &op, &plan) != AMBI_OK) return std::puts(ambi_error()), 1;
  std::unique_ptr<ambi_plan, destroy_plan> planned(plan);
  if (ambi_run(plan, nullptr, bufs, AMBI_SLOTS, ambi_buf{}) != AMBI_OK) return std::puts(ambi_error()), 1;
  for (int i = 0; i < 4; i++)
    if (std::fabs(y[i] - x[i] * r) > 1e-6) return std::printf("y[%d] = %g\n", i, y[i]), 1;
  return ambi_version() != AMBI_VERSION;
}
