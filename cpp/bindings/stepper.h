// The loop over a shard's environments, done without the interpreter for as long as all is plain.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/numpy.h"
#include "bindings/rows.h"
#include "bindings/step_slot.h"

// After it: NumPy's scalar objects.
#include <numpy/arrayscalars.h>

namespace envfleet {

namespace nb = nanobind;

// Steps environments one after another and publishes what they return, until one is not plain.
class RowStepper {
  public:
    using Flags = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Due = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    // `actions`: the array in which the rows' actions lie, or None if they are not just that.
    // `digests`: where what is shown is noted, or None.
    RowStepper(nb::object publisher, nb::object infos, nb::object progress, nb::object actions,
               Flags terminated, Flags truncated, Flags restarted, Due due, nb::object digests)
        : keep_publisher_(std::move(publisher)),
          keep_infos_(std::move(infos)),
          keep_progress_(std::move(progress)),
          keep_digests_(std::move(digests)),
          column_(std::move(actions)),
          publisher_(keep_publisher_.is_none() ? nullptr
                                               : nb::cast<RowPublisher*>(keep_publisher_)),
          infos_(nb::cast<InfoPacker*>(keep_infos_)),
          progress_(nb::cast<Progress*>(keep_progress_)),
          digests_(keep_digests_.is_none() ? nullptr : nb::cast<Digests*>(keep_digests_)),
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
        if (nb::cast<StepSlot*>(slot) == nullptr) throw nb::type_error("expected a StepSlot");
        slots_.at(row) = std::move(slot);
    }

    // A turn of all rows begins: forgets what the last one left. The actions, one per row, are
    // given, or None: then they are taken from their array.
    void begin(nb::object actions) {
        for (Flags& flags : flags_) std::fill_n(flags.data(), flags.size(), false);
        infos_->begin();
        progress_->enter(0);
        aim(0, actions.is_none() ? column_actions() : nb::cast<nb::list>(actions));
    }

    // The next run is to step the rows from `first` on, one an action.
    void aim(size_t first, nb::list actions) {
        if (first > slots_.size() || actions.size() > slots_.size() - first) {
            throw nb::index_error("more actions than rows");
        }
        first_ = first;
        actions_ = std::move(actions);
    }

    // Steps the rows from `row` on for which there are actions. None: all are done. Else the first
    // that is not plain: (row, what it returned), or (row, None) if something else than a step is
    // due there.
    nb::object run(size_t row) {
        if (row < first_) throw nb::index_error("no action for this row");
        // An environment may have others stepped, by this very object, and change what it was
        // given.
        const nb::list actions = actions_;
        const size_t first = first_, last = first + actions.size();
        RowKeeper stepped(row_, row);
        for (; row < last; stepped.move_to(++row)) {
            if (due_.data()[row] != 0) return nb::make_tuple(row, nb::none());
            const nb::object slot = slots_[row];
            if (!slot.is_valid()) throw std::runtime_error("no environment in this row");
            if (row - first >= actions.size()) throw nb::index_error("no action for this row");
            const nb::object action = nb::borrow(PyList_GET_ITEM(actions.ptr(), row - first));
            nb::object result = nb::inst_ptr<StepSlot>(slot)->step(action);
            if (!publish(row, result.ptr())) return nb::make_tuple(row, result);
        }
        return nb::none();
    }

    // A turn of all rows: begin() and run() in one. If all are done, it is noted that none is at
    // work any more.
    nb::object run_all(nb::object actions) {
        begin(std::move(actions));
        nb::object stopped = run(0);
        if (stopped.is_none()) progress_->enter(slots_.size());
        return stopped;
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
    // Says at the end which row a run stepped last, also if another run came between.
    class RowKeeper {
      public:
        RowKeeper(size_t& told, size_t row) : told_(told), row_(row) {}
        ~RowKeeper() { told_ = row_; }
        void move_to(size_t row) { row_ = row; }

      private:
        size_t& told_;
        size_t row_;
    };

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

    bool publish(size_t row, PyObject* result) {
        if (publisher_ == nullptr || !PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != 5)
            return false;
        const auto item = [result](Py_ssize_t i) { return PyTuple_GET_ITEM(result, i); };
        if (!is_false(item(2)) || !is_false(item(3)) ||
            !publisher_->put(row, item(0), item(1), item(4))) {
            return false;
        }
        if (digests_ != nullptr) digests_->add(row, false, false, infos_->digest(row));
        return true;
    }
    static bool is_false(PyObject* flag) { return flag == Py_False || flag == PyArrayScalar_False; }

    nb::object keep_publisher_;
    nb::object keep_infos_;
    nb::object keep_progress_;
    nb::object keep_digests_;
    nb::object column_;
    RowPublisher* publisher_;
    InfoPacker* infos_;
    Progress* progress_;
    Digests* digests_;
    Flags flags_[3];
    Due due_;
    std::vector<nb::object> slots_;
    nb::list actions_;
    size_t first_ = 0;
    size_t row_ = 0;
};

}  // namespace envfleet
