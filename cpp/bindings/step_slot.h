// One environment as it is stepped: inside Gymnasium's standard wrappers while they only pass
// actions on, by them while they do more.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/attributes.h"
#include "bindings/gil.h"

namespace envfleet {

namespace nb = nanobind;

// One of an object's own attributes, borrowed, or null. For names that are interned strings: their
// comparison raises nothing.
inline PyObject* attribute_of(PyObject* attributes, PyObject* name) {
    PyObject* value = PyDict_GetItemWithError(attributes, name);
    if (value == nullptr) PyErr_Clear();
    return value;
}

// One of Gymnasium's standard wrappers, whose step() has nothing to do but to pass the action on
// for as long as nothing that could change this has changed.
//
// This is looked at before every step, and its memory has often left the cache since the step
// before. So what is needed for that is small, and nothing is called or written.
class FusedWrapper {
  public:
    // `settled`: the names of attributes that are True once it has nothing else to do.
    FusedWrapper(nb::object wrapper, nb::object inside, const nb::tuple& settled)
        : wrapper_(std::move(wrapper)),
          type_(Py_TYPE(wrapper_.ptr())),
          class_(class_version_of(type_)),
          place_(wrapper_.ptr()),
          needed_(new Needed{std::move(inside), {}}) {
        for (nb::handle name : settled) needed_->settled.push_back(nb::borrow(name));
        if (class_ == 0) class_ = no_version;
    }

    bool passes_on() {
        if (Py_TYPE(wrapper_.ptr()) != type_ || class_version_of(type_) != class_) return false;
        PyObject* own = attributes();
        if (own == nullptr) return false;
        const uint64_t version = version_of(own);
        return (version != 0 && version == seen_) || passes_on_with(nb::borrow(own));
    }

    // The dict of its own attributes, borrowed; null if there is none by now.
    PyObject* attributes() const { return place_.look(wrapper_.ptr()); }

    // Its attributes were changed, from one version to another, in a way that does not matter here.
    void overlook(uint64_t from, uint64_t to) {
        if (seen_ == from) seen_ = to;
    }

    int visit(visitproc visit, void* arg) const {
        Py_VISIT(wrapper_.ptr());
        Py_VISIT(needed_->inside.ptr());
        return 0;
    }

  private:
    static constexpr unsigned int no_version = ~0u;

    // What must be found among its attributes.
    struct Needed {
        nb::object inside;
        std::vector<nb::object> settled;
    };

    bool passes_on_with(const nb::object& own) {
        const uint64_t version = version_of(own.ptr());
        const AttributeNames& names = AttributeNames::get();
        const auto attribute = [&](PyObject* name) { return attribute_of(own.ptr(), name); };
        const auto& [inside, settled] = *needed_;
        const bool passes =
            attribute(names.env) == inside.ptr() && attribute(names.step) == nullptr &&
            std::all_of(settled.begin(), settled.end(),
                        [&](const nb::object& name) { return attribute(name.ptr()) == Py_True; });
        if (passes) seen_ = version;
        return passes;
    }

    nb::object wrapper_;
    PyTypeObject* type_;  // kept by the wrapper, or no longer looked at
    uint64_t seen_ = 0;
    unsigned int class_;
    AttributesPlace place_;
    std::unique_ptr<Needed> needed_;
};

// The count of a time limit, which lies among the wrapper's attributes for anyone to see and
// change.
class TimeCount {
  public:
    // Whether the attributes hold what is counted here: Python's own integers, none of them huge.
    bool knows(PyObject* attributes) {
        const uint64_t version = version_of(attributes);
        if (version != 0 && version == version_) return true;
        forget();
        const AttributeNames& names = AttributeNames::get();
        return is_small(attribute_of(attributes, names.elapsed), elapsed_) &&
               is_small(attribute_of(attributes, names.limit), limit_);
    }

    // Counts a step, after a look at the same attributes; whether time is up.
    bool add_step(PyObject* attributes) {
        ++elapsed_;
        if (number_ == nullptr || !change(number_, elapsed_)) replace(attributes);
        return elapsed_ >= limit_;
    }

    void forget() {
        version_ = 0;
        number_ = nullptr;
    }

  private:
    static bool is_small(PyObject* value, int64_t& number) {
        if (value == nullptr || !PyLong_CheckExact(value)) return false;
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0 && number < std::numeric_limits<int64_t>::max();
    }

    void replace(PyObject* attributes) {
        const nb::object number = nb::steal(new_number(elapsed_));
        if (!number.is_valid() ||
            PyDict_SetItem(attributes, AttributeNames::get().elapsed, number.ptr()) != 0) {
            forget();
            throw nb::python_error();
        }
        version_ = version_of(attributes);
        number_ = version_ == 0 ? nullptr : number.ptr();
    }

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
    // A number that nobody holds but the attributes can be changed where it is, and nobody can
    // tell. That takes one write; another number in its place takes a search in a dict. It must not
    // be one of the small numbers that all of Python shares.
    static bool is_one_digit(int64_t value) { return value > 0 && value <= PyLong_MASK; }
    static PyObject* new_number(int64_t value) {
        if (!is_one_digit(value)) return PyLong_FromLongLong(value);
        PyLongObject* number = _PyLong_New(1);
        if (number != nullptr) number->ob_digit[0] = static_cast<digit>(value);
        return reinterpret_cast<PyObject*>(number);
    }
    static bool change(PyObject* number, int64_t value) {
        if (Py_REFCNT(number) != 1 || !is_one_digit(value)) return false;
        reinterpret_cast<PyLongObject*>(number)->ob_digit[0] = static_cast<digit>(value);
        return true;
    }
#else
    static PyObject* new_number(int64_t value) { return PyLong_FromLongLong(value); }
    static bool change(PyObject*, int64_t) { return false; }
#endif

    // What the attributes were in this version of them.
    uint64_t version_ = 0;
    int64_t elapsed_ = 0;
    int64_t limit_ = 0;
    PyObject* number_ = nullptr;  // the count as it lies there, borrowed
};

// One environment as it is stepped: inside the standard wrappers around it while they only pass
// actions on, by them while they do not.
class StepSlot {
  public:
    StepSlot() = default;
    StepSlot(const StepSlot&) = delete;
    StepSlot& operator=(const StepSlot&) = delete;

    // `wrappers`: (wrapper, the environment inside it, names for FusedWrapper) each, from the
    // outside in. `time_limit`: the one among them that counts steps, or None. `otherwise` steps
    // the whole of it in every case.
    void fuse(nb::object env, const nb::list& wrappers, nb::object time_limit,
              nb::object otherwise) {
        std::vector<FusedWrapper> fused;
        std::optional<size_t> counter;
        for (nb::handle each : wrappers) {
            if (nb::object(each[0]).is(time_limit)) counter = fused.size();
            fused.emplace_back(each[0], each[1], nb::cast<nb::tuple>(each[2]));
        }
        if (!counter && !time_limit.is_none()) {
            throw nb::value_error("the time limit must be one of the wrappers");
        }
        counter_ = counter.value_or(0);
        ++fusions_;
        count_.forget();
        env_ = std::move(env);
        wrappers_ = std::move(fused);
        time_limit_ = time_limit.is_none() ? nb::object() : std::move(time_limit);
        otherwise_ = std::move(otherwise);
    }

    // What the environment returned; once time is up, truncated.
    nb::object step(nb::handle action) {
        if (!env_.is_valid()) throw std::runtime_error("nothing to step");
        for (FusedWrapper& wrapper : wrappers_) {
            if (!wrapper.passes_on()) return step_otherwise(action);
        }
        // Kept: while it steps, an environment may have the slot filled with others.
        const nb::object env = env_, time_limit = time_limit_;
        const uint64_t fusion = fusions_;
        // By name, every time: it may have been given another step() since the last.
        PyObject* arguments[] = {nullptr, env.ptr(), action.ptr()};
        nb::object result = nb::steal(surviving_the_interpreter([&] {
            return PyObject_VectorcallMethod(AttributeNames::get().step, arguments + 1,
                                             2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        }));
        if (!result.is_valid()) throw nb::python_error();
        if (!time_limit.is_valid()) return result;
        const bool is_up =
            fusion == fusions_ ? count_step(time_limit) : count_unusual_step(time_limit);
        return is_up ? truncated(result) : result;
    }

    static int traverse(PyObject* self, visitproc visit, void* arg) {
        Py_VISIT(Py_TYPE(self));
        if (!nb::inst_ready(self)) return 0;
        const auto* slot = nb::inst_ptr<StepSlot>(self);
        for (const FusedWrapper& wrapper : slot->wrappers_) {
            if (const int stop = wrapper.visit(visit, arg)) return stop;
        }
        Py_VISIT(slot->env_.ptr());
        Py_VISIT(slot->time_limit_.ptr());
        Py_VISIT(slot->otherwise_.ptr());
        return 0;
    }
    static int clear(PyObject* self) {
        if (!nb::inst_ready(self)) return 0;
        auto* slot = nb::inst_ptr<StepSlot>(self);
        slot->wrappers_.clear();
        slot->env_.reset();
        slot->time_limit_.reset();
        slot->otherwise_.reset();
        return 0;
    }

  private:
    nb::object step_otherwise(nb::handle action) {
        const nb::object otherwise = otherwise_;
        return surviving_the_interpreter([&] { return nb::object(otherwise(action)); });
    }

    // What TimeLimit does after a step, by what its attributes are by then; whether time is up.
    bool count_step(const nb::object& time_limit) {
        FusedWrapper& wrapper = wrappers_[counter_];
        PyObject* own = wrapper.attributes();
        if (own == nullptr || !count_.knows(own)) return count_unusual_step(time_limit);
        const uint64_t before = version_of(own);
        const bool is_up = count_.add_step(own);
        wrapper.overlook(before, version_of(own));
        return is_up;
    }

    // Numbers that are none of Python's small ones: with whatever operators they have.
    static bool count_unusual_step(const nb::object& time_limit) {
        const AttributeNames& names = AttributeNames::get();
        const auto attribute = [&](PyObject* name) {
            nb::object value = nb::steal(PyObject_GetAttr(time_limit.ptr(), name));
            if (!value.is_valid()) throw nb::python_error();
            return value;
        };
        const nb::object next =
            nb::steal(PyNumber_InPlaceAdd(attribute(names.elapsed).ptr(), nb::int_(1).ptr()));
        if (!next.is_valid() ||
            PyObject_SetAttr(time_limit.ptr(), names.elapsed, next.ptr()) != 0) {
            throw nb::python_error();
        }
        const nb::object elapsed = attribute(names.elapsed), limit = attribute(names.limit);
        const int is_up = PyObject_RichCompareBool(elapsed.ptr(), limit.ptr(), Py_GE);
        if (is_up < 0) throw nb::python_error();
        return is_up != 0;
    }

    static nb::object truncated(const nb::object& result) {
        nb::object items = nb::steal(PySequence_List(result.ptr()));
        if (!items.is_valid()) throw nb::python_error();
        if (PyList_GET_SIZE(items.ptr()) != 5) return result;  // whoever takes it apart will say so
        Py_INCREF(Py_True);
        PyList_SetItem(items.ptr(), 3, Py_True);
        return nb::steal(PyList_AsTuple(items.ptr()));
    }

    nb::object env_;
    std::vector<FusedWrapper> wrappers_;
    nb::object time_limit_;
    nb::object otherwise_;
    uint64_t fusions_ = 0;
    size_t counter_ = 0;  // which of the wrappers is the time limit
    TimeCount count_;
};

}  // namespace envfleet
