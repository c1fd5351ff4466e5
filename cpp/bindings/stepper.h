// The loop over a shard's environments, done without the interpreter for as long as all is plain.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bindings/numpy.h"
#include "bindings/rows.h"

// After it: NumPy's scalar objects.
#include <numpy/arrayscalars.h>

namespace envfleet {

namespace nb = nanobind;

// One environment as it is stepped: what is called, and after how many steps its time is up.
class StepSlot {
  public:
    static constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();

    void call(nb::object callee, int64_t elapsed, int64_t limit) {
        callee_ = std::move(callee);
        elapsed_ = elapsed;
        limit_ = limit;
    }
    int64_t elapsed() const { return elapsed_; }
    void begin_episode() { elapsed_ = 0; }

    // What the environment returned; once time is up, truncated.
    nb::object step(nb::handle action) {
        const nb::object callee = callee_;  // it may replace itself
        if (!callee.is_valid()) throw std::runtime_error("nothing to step");
        ++elapsed_;
        PyObject* arguments[] = {nullptr, action.ptr()};
        PyObject* result = PyObject_Vectorcall(callee.ptr(), arguments + 1,
                                               1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        if (result == nullptr) {
            --elapsed_;
            throw nb::python_error();
        }
        nb::object owned = nb::steal(result);
        return elapsed_ < limit_ ? owned : truncated(owned);
    }

    static int traverse(PyObject* self, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(self));
        if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<StepSlot>(self)->callee_.ptr());
        return 0;
    }
    static int clear(PyObject* self) {
        if (nb::inst_ready(self)) nb::inst_ptr<StepSlot>(self)->callee_.reset();
        return 0;
    }

  private:
    static nb::object truncated(const nb::object& result) {
        nb::object items = nb::steal(PySequence_List(result.ptr()));
        if (!items.is_valid()) throw nb::python_error();
        if (PyList_GET_SIZE(items.ptr()) != 5) return result;  // whoever takes it apart will say so
        Py_INCREF(Py_True);
        PyList_SetItem(items.ptr(), 3, Py_True);
        return nb::steal(PyList_AsTuple(items.ptr()));
    }

    nb::object callee_;
    int64_t elapsed_ = 0;
    int64_t limit_ = no_limit;
};

// Steps environments one after another and publishes what they return, until one is not plain.
class RowStepper {
  public:
    using Flags = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Due = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    // `actions`: the array in which the rows' actions lie, or None if they are not just that.
    RowStepper(nb::object publisher, nb::object infos, nb::object progress, nb::object actions,
               Flags terminated, Flags truncated, Flags restarted, Due due)
        : keep_publisher_(std::move(publisher)),
          keep_infos_(std::move(infos)),
          keep_progress_(std::move(progress)),
          column_(std::move(actions)),
          publisher_(keep_publisher_.is_none() ? nullptr
                                               : nb::cast<RowPublisher*>(keep_publisher_)),
          infos_(nb::cast<InfoPacker*>(keep_infos_)),
          progress_(nb::cast<Progress*>(keep_progress_)),
          flags_{std::move(terminated), std::move(truncated), std::move(restarted)},
          due_(std::move(due)),
          slots_(due_.size()) {
        for (const Flags& flags : flags_) {
            if (flags.size() != due_.size()) throw nb::value_error("expected a flag a row");
        }
        if (!column_.is_none() && !PyArray_Check(column_.ptr())) {
            throw nb::type_error("actions must be an array or None");
        }
    }

    // The environment of a row, a StepSlot.
    void place(size_t row, nb::object slot) {
        nb::cast<StepSlot*>(slot);
        slots_.at(row) = std::move(slot);
    }

    // A turn of all rows begins: forgets what the last one left. The actions, one a row, are given,
    // or None: then they are taken from their array.
    void begin(nb::object actions) {
        for (Flags& flags : flags_) std::fill_n(flags.data(), flags.size(), false);
        infos_->begin();
        progress_->enter(0);
        aim(0, actions.is_none() ? column_actions() : nb::cast<nb::list>(actions));
    }

    // The next run is to step the rows from `first` on, one an action.
    void aim(size_t first, nb::list actions) {
        if (first + actions.size() > slots_.size()) throw nb::index_error("more actions than rows");
        first_ = first;
        actions_ = std::move(actions);
    }

    // Steps the rows from `row` on for which there are actions. None: all are done. Else the first
    // that is not plain: (row, what it returned), or (row, None) if something else than a step is
    // due there.
    nb::object run(size_t row) {
        if (row < first_) throw nb::index_error("no action for this row");
        const nb::list actions = actions_;  // an environment may have others stepped
        const size_t first = first_, last = first + actions.size();
        for (row_ = row; row_ < last; ++row_) {
            if (due_.data()[row_] != 0) return nb::make_tuple(row_, nb::none());
            if (!slots_[row_].is_valid()) throw std::runtime_error("no environment in this row");
            StepSlot* slot = nb::inst_ptr<StepSlot>(slots_[row_]);
            nb::object result = slot->step(PyList_GET_ITEM(actions.ptr(), row_ - first));
            if (!publish(result.ptr())) return nb::make_tuple(row_, result);
        }
        return nb::none();
    }

    // The row that was being stepped, for those who catch what it raised.
    size_t row() const { return row_; }

    // The environments hold on to themselves through their slots: the collector must see the way.
    static int traverse(PyObject* self, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(self));
        if (!nb::inst_ready(self)) return 0;
        const auto* stepper = nb::inst_ptr<RowStepper>(self);
        for (const nb::object& slot : stepper->slots_) Py_VISIT(slot.ptr());
        Py_VISIT(stepper->actions_.ptr());
        return 0;
    }
    static int clear(PyObject* self) {
        if (!nb::inst_ready(self)) return 0;
        auto* stepper = nb::inst_ptr<RowStepper>(self);
        for (nb::object& slot : stepper->slots_) slot.reset();
        stepper->actions_.reset();
        return 0;
    }

  private:
    // One copy for all rows: an environment may keep its action although the array moves on.
    nb::list column_actions() const {
        if (column_.is_none()) throw nb::value_error("expected actions");
        auto* column = reinterpret_cast<PyArrayObject*>(column_.ptr());
        const nb::object copy = nb::steal(PyArray_NewCopy(column, NPY_CORDER));
        if (!copy.is_valid()) throw nb::python_error();
        PyObject* rows = PySequence_List(copy.ptr());
        if (rows == nullptr) throw nb::python_error();
        return nb::steal<nb::list>(rows);
    }

    bool publish(PyObject* result) {
        if (publisher_ == nullptr || !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 5)
            return false;
        const auto item = [result](Py_ssize_t i) { return PyTuple_GET_ITEM(result, i); };
        return is_false(item(2)) && is_false(item(3)) &&
               publisher_->put(row_, item(0), item(1), item(4));
    }
    static bool is_false(PyObject* flag) { return flag == Py_False || flag == PyArrayScalar_False; }

    nb::object keep_publisher_;
    nb::object keep_infos_;
    nb::object keep_progress_;
    nb::object column_;
    RowPublisher* publisher_;
    InfoPacker* infos_;
    Progress* progress_;
    Flags flags_[3];
    Due due_;
    std::vector<nb::object> slots_;
    nb::list actions_;
    size_t first_ = 0;
    size_t row_ = 0;
};

}  // namespace envfleet
