// NumPy's C interface; `import_numpy()` must have run before any of it is used.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

namespace envfleet {

inline void import_numpy() {
    if (_import_array() < 0) throw nanobind::python_error();
}

}  // namespace envfleet
