// A perceptron as a policy for rollouts: what policy.cpp adds to a module.
#pragma once

#include <nanobind/nanobind.h>

namespace envfleet {

void bind_policy(nanobind::module_&);

}  // namespace envfleet
