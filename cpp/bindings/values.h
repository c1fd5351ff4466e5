// Python objects <-> values of fields.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/numpy.h"
#include "engine/fields.h"

namespace envfleet {

namespace nb = nanobind;

inline Value value_from(nb::handle object);

inline Value values_from(nb::handle sequence) {
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    for (nb::handle each : nb::borrow<nb::iterable>(sequence)) {
        const Value value = value_from(each);
        if (const auto* integer = std::get_if<int64_t>(&value)) {
            integers.push_back(*integer);
            numbers.push_back(static_cast<double>(*integer));
        } else if (const auto* number = std::get_if<double>(&value)) {
            numbers.push_back(*number);
        } else {
            throw nb::type_error("expected a sequence of numbers");
        }
    }
    if (integers.size() == numbers.size()) return integers;
    return numbers;
}

// Bools, numbers, strings, None and sequences of numbers; NumPy's scalars are what they hold.
inline Value value_from(nb::handle object) {
    PyObject* const p = object.ptr();
    if (object.is_none()) return {};
    if (PyBool_Check(p)) return p == Py_True;
    if (PyLong_Check(p)) return nb::cast<int64_t>(object);
    if (PyFloat_Check(p)) return PyFloat_AS_DOUBLE(p);
    if (PyUnicode_Check(p)) return nb::cast<std::string>(object);
    if (PyArray_CheckScalar(p)) return value_from(object.attr("item")());
    if (PySequence_Check(p)) return values_from(object);
    throw nb::type_error("expected a number, a bool, a string or a sequence of numbers");
}

inline NamedValues named_values_from(nb::handle dict) {
    NamedValues values;
    if (dict.is_none()) return values;
    for (auto [name, value] : nb::cast<nb::dict>(dict)) {
        values.emplace_back(nb::cast<std::string>(nb::str(name)), value_from(value));
    }
    return values;
}

inline nb::object array_of(const std::vector<double>& numbers) {
    npy_intp size = static_cast<npy_intp>(numbers.size());
    PyObject* array = PyArray_SimpleNew(1, &size, NPY_DOUBLE);
    if (array == nullptr) throw nb::python_error();
    std::copy(numbers.begin(), numbers.end(),
              static_cast<double*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array))));
    return nb::steal(array);
}

inline nb::object object_from(const Value& value) {
    struct Converter {
        nb::object operator()(std::monostate) const { return nb::none(); }
        nb::object operator()(bool b) const { return nb::bool_(b); }
        nb::object operator()(int64_t i) const { return nb::int_(i); }
        nb::object operator()(double d) const { return nb::float_(d); }
        nb::object operator()(const std::string& s) const { return nb::str(s.c_str()); }
        nb::object operator()(const std::vector<int64_t>& integers) const {
            nb::list list;
            for (const int64_t i : integers) list.append(i);
            return list;
        }
        nb::object operator()(const std::vector<double>& v) const { return array_of(v); }
    };
    return std::visit(Converter{}, value);
}

}  // namespace envfleet
