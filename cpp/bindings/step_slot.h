// One environment as it is stepped: inside Gymnasium's standard wrappers while they only pass actions
// on, by them while they do more.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/gil.h"

namespace envfleet {

namespace nb = nanobind;

// Names of attributes, made once.
struct AttributeNames {
    PyObject* step = PyUnicode_InternFromString("step");
    PyObject* env = PyUnicode_InternFromString("env");
    PyObject* elapsed = PyUnicode_InternFromString("_elapsed_steps");
    PyObject* limit = PyUnicode_InternFromString("_max_episode_steps");

    static const AttributeNames& get() {
        static const AttributeNames names;
        return names;
    }
};

// The attributes of an object that lie in a dict of its own; no object if there is none.
inline nb::object own_attributes(PyObject* object) {
    nb::object attributes = nb::steal(PyObject_GenericGetDict(object, nullptr));
    if (!attributes.is_valid()) PyErr_Clear();
    return attributes;
}

// One of them, borrowed, or null. For names that are interned strings: their comparison raises
// nothing.
inline PyObject* attribute_of(const nb::object& attributes, PyObject* name) {
    PyObject* value = PyDict_GetItemWithError(attributes.ptr(), name);
    if (value == nullptr) PyErr_Clear();
    return value;
}

// A number that is another after every change of a dict; 0 where Python keeps none, and each look
// has to be a close one.
inline uint64_t version_of(const nb::object& dict) {
#if PY_VERSION_HEX < 0x030C0000
    return reinterpret_cast<PyDictObject*>(dict.ptr())->ma_version_tag;
#else
    static_cast<void>(dict);
    return 0;
#endif
}

// One of Gymnasium's standard wrappers, whose step() has nothing to do but to pass the action on
// for as long as nothing that could change this has changed.
class FusedWrapper {
  public:
    // `settled`: the names of attributes that are True once it has nothing else to do.
    FusedWrapper(nb::object wrapper, nb::object inside, const nb::tuple& settled)
        : wrapper_(std::move(wrapper)),
          inside_(std::move(inside)),
          type_(Py_TYPE(wrapper_.ptr())),
          class_(class_version_of(type_)) {
        for (nb::handle name : settled) settled_.push_back(nb::borrow(name));
    }

    // A class has another version as soon as it, or one that it inherits from, was changed in any
    // way; or none, and then nothing is certain.
    bool passes_on() {
        if (Py_TYPE(wrapper_.ptr()) != type_ || class_ == 0 || class_version_of(type_) != class_)
            return false;
        const nb::object own = own_attributes(wrapper_.ptr());
        if (!own.is_valid()) return false;
        const uint64_t version = version_of(own);
        if (version != 0 && version == seen_) return true;
        if (!passes_on(own)) return false;
        seen_ = version;
        return true;
    }

    // Its attributes were changed, from one version to another, in a way that does not matter here.
    void overlook(uint64_t from, uint64_t to) {
        if (seen_ == from) seen_ = to;
    }

    int visit(visitproc visit, void* arg) const {
        Py_VISIT(wrapper_.ptr());
        Py_VISIT(inside_.ptr());
        return 0;
    }

  private:
    bool passes_on(const nb::object& own) const {
        const AttributeNames& names = AttributeNames::get();
        return attribute_of(own, names.env) == inside_.ptr() &&
               attribute_of(own, names.step) == nullptr &&
               std::all_of(settled_.begin(), settled_.end(), [&](const nb::object& name) {
                   return attribute_of(own, name.ptr()) == Py_True;
               });
    }

    static unsigned int class_version_of(const PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030C0000  // later ones have the number 0 while they have no version
        if ((type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) == 0) return 0;
#endif
        return type->tp_version_tag;
    }

    nb::object wrapper_;
    nb::object inside_;
    PyTypeObject* type_;  // kept by the wrapper, or no longer looked at
    unsigned int class_;
    uint64_t seen_ = 0;
    std::vector<nb::object> settled_;
};

// One environment as it is stepped: inside the standard wrappers around it while they only pass
// actions on, by them while they do not.
class StepSlot {
  public:
    // `wrappers`: (wrapper, the environment inside it, names for FusedWrapper) each, from the
    // outside in. `time_limit`: the one among them that counts steps, or None. `otherwise` steps
    // the whole of it in every case.
    void fuse(nb::object env, const nb::list& wrappers, nb::object time_limit,
              nb::object otherwise) {
        std::vector<FusedWrapper> fused;
        for (nb::handle each : wrappers) {
            if (nb::object(each[0]).is(time_limit)) counter_ = fused.size();
            fused.emplace_back(each[0], each[1], nb::cast<nb::tuple>(each[2]));
        }
        ++fusions_;
        counted_ = 0;
        env_ = std::move(env);
        wrappers_ = std::move(fused);
        time_limit_ = time_limit.is_none() ? nb::object() : std::move(time_limit);
        otherwise_ = std::move(otherwise);
    }

    // What the environment returned; once time is up, truncated.
    nb::object step(nb::handle action) {
        // Kept: while it steps, an environment may have the slot filled with others.
        const nb::object env = env_, time_limit = time_limit_, otherwise = otherwise_;
        if (!env.is_valid()) throw std::runtime_error("nothing to step");
        for (FusedWrapper& wrapper : wrappers_) {
            if (!wrapper.passes_on()) {
                return surviving_the_interpreter([&] { return nb::object(otherwise(action)); });
            }
        }
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
    // What TimeLimit does after a step, by what its attributes are by then; whether time is up.
    bool count_step(const nb::object& time_limit) {
        const AttributeNames& names = AttributeNames::get();
        const nb::object own = own_attributes(time_limit.ptr());
        if (!own.is_valid()) return count_unusual_step(time_limit);
        const uint64_t version = version_of(own);
        const bool is_known = version != 0 && version == counted_;
        if (!is_known && !(is_small(attribute_of(own, names.elapsed), elapsed_) &&
                           is_small(attribute_of(own, names.limit), limit_))) {
            return count_unusual_step(time_limit);
        }
        const nb::object next = nb::steal(PyLong_FromLongLong(++elapsed_));
        if (!next.is_valid() || PyDict_SetItem(own.ptr(), names.elapsed, next.ptr()) != 0)
            throw nb::python_error();
        counted_ = version_of(own);
        wrappers_[counter_].overlook(version, counted_);
        return elapsed_ >= limit_;
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

    static bool is_small(PyObject* value, int64_t& number) {
        if (value == nullptr || !PyLong_CheckExact(value)) return false;
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
        return overflow == 0 && number < std::numeric_limits<int64_t>::max();
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
    // What the time limit's attributes were in this version of them.
    uint64_t counted_ = 0;
    int64_t elapsed_ = 0;
    int64_t limit_ = 0;
};

}  // namespace envfleet
