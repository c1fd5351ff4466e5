// Rounded twice in each step, as NumPy does: compiled without multiply-adds.
#include "bindings/recurrence.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace envfleet {

namespace nb = nanobind;

namespace {

using Steps = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Start = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// result[t] = added[t] + decay[t] * result of the step before, `start` before the first; backwards:
// of the step after.
void carry(const Steps& added, const Steps& decay, const Start& start, const Result& result,
           bool backwards) {
    const size_t steps = added.shape(0), rows = added.shape(1);
    if (decay.shape(0) != steps || decay.shape(1) != rows || start.shape(0) != rows ||
        result.shape(0) != steps || result.shape(1) != rows) {
        throw std::invalid_argument("carry: expected arrays of one shape");
    }
    const double* before = start.data();
    for (size_t i = 0; i < steps; ++i) {
        const size_t place = (backwards ? steps - 1 - i : i) * rows;
        double* now = result.data() + place;
        for (size_t row = 0; row < rows; ++row) {
            now[row] = added.data()[place + row] + decay.data()[place + row] * before[row];
        }
        before = now;
    }
}

}  // namespace

void bind_recurrence(nb::module_& module) {
    module.def("carry", &carry, nb::arg("added").noconvert(), nb::arg("decay").noconvert(),
               nb::arg("start").noconvert(), nb::arg("result").noconvert(), nb::arg("backwards"),
               "result[t] = added[t] + decay[t] * result[t - 1], or of t + 1 if backwards.");
}

}  // namespace envfleet
