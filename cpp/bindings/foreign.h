// Environments behind the C interface, and what Python needs to know of it.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/catalogue.h"

namespace envfleet {

void bind_foreign(nanobind::module_&);

}  // namespace envfleet
