// What a Discrete space contains, told without the interpreter for as long as the space is what it
// was.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

#include "bindings/attributes.h"
#include "bindings/numpy.h"

// After it: NumPy's scalar objects.
#include <numpy/arrayscalars.h>

namespace envfleet {

namespace nb = nanobind;

// The attributes of a Discrete space that say what it contains, and what they say.
class DiscreteRange {
  public:
    // `method`: contains() of the class above, which this stands for. `kind`: the type of the
    // values for which it does; those from `first` to before `end` are contained.
    DiscreteRange(nb::object n, nb::object start, nb::object dtype, nb::object method,
                  nb::type_object kind, int64_t first, int64_t end)
        : n_(std::move(n)),
          start_(std::move(start)),
          dtype_(std::move(dtype)),
          method_(std::move(method)),
          kind_(std::move(kind)),
          first_(first),
          end_(end) {}

    // A method contains() for a class whose objects keep such a range in their attribute `_quick`.
    // Whatever that does not answer goes to the method of the class above.
    static nb::object method_of(const nb::type_object& spaces) {
        static PyMethodDef definition = {"contains", &DiscreteRange::contains, METH_O,
                                         "Whether the space contains a value."};
        auto* type = reinterpret_cast<PyTypeObject*>(spaces.ptr());
        if (type->tp_base == nullptr) throw nb::type_error("expected a class that inherits");
        nb::object method = nb::steal(PyDescr_NewMethod(type, &definition));
        if (!method.is_valid()) throw nb::python_error();
        return method;
    }

  private:
    static PyObject* contains(PyObject* space, PyObject* value) noexcept {
        PyObject* own = AttributesPlace(space).look(space);
        DiscreteRange* range = own == nullptr ? nullptr : among(own);
        int64_t number = 0;
        if (range == nullptr || !range->reads(value, number) || !range->is_still(space, own)) {
            return PyErr_Occurred() ? nullptr : contains_otherwise(space, value);
        }
        return PyBool_FromLong(range->first_ <= number && number < range->end_);
    }

    // The range among an object's attributes, borrowed, or null.
    static DiscreteRange* among(PyObject* attributes) {
        static PyObject* const kind = nb::type<DiscreteRange>().ptr();
        PyObject* found = PyDict_GetItemWithError(attributes, AttributeNames::get().quick);
        if (found == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(found)) != kind) return nullptr;
        return nb::inst_ptr<DiscreteRange>(found);
    }

    bool reads(PyObject* value, int64_t& number) const {
        if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != kind_.ptr()) return false;
        if (Py_TYPE(value) == &PyLongArrType_Type) {
            static_assert(sizeof(PyArrayScalar_VAL(value, Long)) == sizeof number);
            number = PyArrayScalar_VAL(value, Long);
            return true;
        }
        const nb::object integer = nb::steal(PyNumber_Long(value));
        if (!integer.is_valid()) return false;
        int overflow = 0;
        number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
        return overflow == 0;
    }

    // Whether the space's attributes and the method above are those that were understood here. They
    // never change, but others may have taken their place.
    bool is_still(PyObject* space, PyObject* own) {
        const uint64_t version = version_of(own);
        const unsigned int its_class = class_version_of(Py_TYPE(space));
        if (version != 0 && version == seen_ && its_class != 0 && its_class == class_) return true;
        const AttributeNames& names = AttributeNames::get();
        const bool same = is_attribute(space, names.n, n_) &&
                          is_attribute(space, names.start, start_) &&
                          is_attribute(space, names.dtype, dtype_) &&
                          is_attribute(class_above(space), names.contains, method_);
        if (same) {
            seen_ = version;
            class_ = its_class;
        }
        return same;
    }
    static bool is_attribute(PyObject* object, PyObject* name, const nb::object& expected) {
        return nb::steal(PyObject_GetAttr(object, name)).is(expected);
    }
    static PyObject* class_above(PyObject* space) {
        return reinterpret_cast<PyObject*>(Py_TYPE(space)->tp_base);
    }

    static PyObject* contains_otherwise(PyObject* space, PyObject* value) {
        const nb::object method =
            nb::steal(PyObject_GetAttr(class_above(space), AttributeNames::get().contains));
        if (!method.is_valid()) return nullptr;
        PyObject* arguments[] = {space, value};
        return PyObject_Vectorcall(method.ptr(), arguments, 2, nullptr);
    }

    nb::object n_, start_, dtype_, method_;
    nb::type_object kind_;
    int64_t first_, end_;
    // Its attributes were looked at in these versions of them and of its class.
    uint64_t seen_ = 0;
    unsigned int class_ = 0;
};

}  // namespace envfleet
