// The caller's end of a plain turn: actions in, results out, without the interpreter.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "bindings/fresh_arrays.h"
#include "bindings/infos.h"
#include "bindings/numpy.h"

namespace envfleet {

namespace nb = nanobind;

// The arrays of a fleet as its caller sees them, one row per environment.
class Batch {
  public:
    using Rows = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Kinds = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    // `observations`: an array, or what puts them together: a function of whether they are to be
    // copied.
    Batch(nb::object actions, nb::object observations, nb::object rewards, nb::object terminated,
          nb::object truncated, Kinds info_kinds)
        : actions_(std::move(actions)),
          observations_(std::move(observations)),
          rewards_(std::move(rewards)),
          terminated_(std::move(terminated)),
          truncated_(std::move(truncated)),
          info_kinds_(std::move(info_kinds)) {
        for (const nb::object& column : {actions_, rewards_, terminated_, truncated_}) {
            if (!PyArray_Check(column.ptr()) || !PyArray_ISCARRAY(array(column)) ||
                PyArray_NDIM(array(column)) == 0) {
                throw nb::type_error("expected plain arrays");
            }
        }
        if (PyDataType_REFCHK(PyArray_DESCR(array(actions_)))) {
            throw nb::type_error("actions must be numbers");
        }
    }

    // Stores actions that are just what is asked for: one array that fits. Else False, and nothing
    // is stored.
    bool put(nb::handle actions) {
        const char* given = fitting(actions.ptr(), PyArray_DIM(array(actions_), 0));
        // They may be the very array that is written to.
        if (given != nullptr) std::memmove(PyArray_DATA(array(actions_)), given, action_bytes());
        return given != nullptr;
    }

    // The same for the actions of some rows.
    bool put_some(Rows rows, nb::handle actions) {
        const npy_intp count = static_cast<npy_intp>(rows.size());
        const char* given = fitting(actions.ptr(), count);
        if (given == nullptr) return false;
        if (count == 0) return true;
        const npy_intp all = PyArray_DIM(array(actions_), 0);
        for (npy_intp i = 0; i < count; ++i) {
            if (rows(i) < 0 || rows(i) >= all) throw nb::index_error("no such row");
        }
        const size_t bytes = action_bytes() / static_cast<size_t>(all);
        char* stored = PyArray_BYTES(array(actions_));
        for (npy_intp i = 0; i < count; ++i) {
            std::memmove(stored + rows(i) * bytes, given + i * bytes, bytes);
        }
        return true;
    }

    bool has_infos() const {
        const uint8_t* kinds = info_kinds_.data();
        return std::any_of(kinds, kinds + info_kinds_.size(), [](uint8_t kind) { return kind; });
    }

    // What a step returns: the observations as they are given, or if None is, as they lie here.
    nb::tuple results(nb::object observations, bool copy, nb::object infos) const {
        if (observations.is_none()) observations = own_observations(copy);
        return nb::make_tuple(std::move(observations), fresh(rewards_), fresh(terminated_),
                              fresh(truncated_), std::move(infos));
    }

    static int traverse(PyObject* self, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(self));
        if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Batch>(self)->observations_.ptr());
        return 0;
    }
    static int clear(PyObject* self) {
        if (nb::inst_ready(self)) nb::inst_ptr<Batch>(self)->observations_.reset();
        return 0;
    }

  private:
    // Where the actions of so many rows lie, if they are an array of just that.
    const char* fitting(PyObject* actions, npy_intp rows) const {
        if (!PyArray_CheckExact(actions)) return nullptr;
        auto* given = reinterpret_cast<PyArrayObject*>(actions);
        PyArrayObject* wanted = array(actions_);
        const int dims = PyArray_NDIM(wanted);
        const bool fits =
            PyArray_EquivTypes(PyArray_DESCR(given), PyArray_DESCR(wanted)) &&
            PyArray_NDIM(given) == dims && PyArray_DIM(given, 0) == rows &&
            PyArray_CompareLists(PyArray_DIMS(given) + 1, PyArray_DIMS(wanted) + 1, dims - 1) &&
            PyArray_ISCARRAY_RO(given);
        return fits ? PyArray_BYTES(given) : nullptr;
    }
    size_t action_bytes() const { return static_cast<size_t>(PyArray_NBYTES(array(actions_))); }

    nb::object own_observations(bool copy) const {
        if (!PyArray_Check(observations_.ptr())) return observations_(copy);
        return copy ? fresh(observations_) : observations_;
    }

    static PyArrayObject* array(const nb::object& column) {
        return reinterpret_cast<PyArrayObject*>(column.ptr());
    }
    static nb::object fresh(const nb::object& column) { return fresh_copy(array(column)); }

    nb::object actions_, observations_, rewards_, terminated_, truncated_;
    Kinds info_kinds_;
};

// Some rows of an array, in their order.
inline nb::object fresh_rows(nb::handle array, Batch::Rows rows) {
    const Column column(array);
    const std::span chosen(rows.data(), rows.size());
    for (const int64_t row : chosen) {
        if (row < 0 || static_cast<size_t>(row) >= column.rows()) {
            throw nb::index_error("no such row");
        }
    }
    return chosen.empty() ? column.unwritten(0).object() : column.copy(Selection::of(chosen));
}

}  // namespace envfleet
