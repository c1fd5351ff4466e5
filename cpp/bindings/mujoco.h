// MuJoCo's environments, and how they get hold of MuJoCo.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/catalogue.h"

namespace envfleet {

void bind_mujoco(nanobind::module_&);

}  // namespace envfleet
