// Sums that are carried from one step of many environments to the next.
#pragma once

#include <nanobind/nanobind.h>

namespace envfleet {

// Adds carry(), which learns without a loop in Python over the steps of a rollout.
void bind_recurrence(nanobind::module_&);

}  // namespace envfleet
