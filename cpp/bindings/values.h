// Python objects <-> values of fields.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/numpy.h"
#include "engine/fields.h"
#include "engine/random.h"

namespace envfleet {

namespace nb = nanobind;

// Of an integer that no int64_t can hold an error, not what is left of it.
inline int64_t integer_from(nb::handle object) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) throw nb::value_error("integers must fit into 64 bits.");
    if (value == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
}

inline std::string text_from(nb::handle object) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text == nullptr) throw nb::python_error();
    return {text, static_cast<size_t>(size)};
}

// A bool, a number, a string or None; nothing if it is neither. NumPy's scalars are what they hold.
inline std::optional<Value> scalar_from(nb::handle object) {
    PyObject* const p = object.ptr();
    if (object.is_none()) return Value{};
    if (PyBool_Check(p)) return Value{p == Py_True};
    if (PyLong_Check(p)) return Value{integer_from(object)};
    if (PyFloat_Check(p)) return Value{PyFloat_AS_DOUBLE(p)};
    if (PyUnicode_Check(p)) return Value{text_from(object)};
    if (!PyArray_CheckScalar(p)) return std::nullopt;
    const nb::object held = object.attr("item")();
    return PyArray_CheckScalar(held.ptr()) ? std::nullopt : scalar_from(held);
}

inline Value values_from(nb::handle sequence) {
    constexpr Py_ssize_t most = 1 << 24;
    const Py_ssize_t size = PySequence_Size(sequence.ptr());
    if (size < 0) throw nb::python_error();
    if (size > most) throw nb::value_error("that are too many numbers.");
    std::vector<double> numbers;
    std::vector<int64_t> integers;
    for (nb::handle each : nb::borrow<nb::iterable>(sequence)) {
        const std::optional<Value> value = scalar_from(each);
        const auto* integer = value ? std::get_if<int64_t>(&*value) : nullptr;
        const auto* number = value ? std::get_if<double>(&*value) : nullptr;
        if (integer != nullptr) {
            integers.push_back(*integer);
            numbers.push_back(static_cast<double>(*integer));
        } else if (number != nullptr) {
            numbers.push_back(*number);
        } else {
            throw nb::type_error("expected a sequence of numbers.");
        }
        if (numbers.size() > size_t{most}) throw nb::value_error("that are too many numbers.");
    }
    if (integers.size() == numbers.size()) return integers;
    return numbers;
}

// Bools, numbers, strings, None and sequences of numbers; NumPy's scalars are what they hold.
inline Value value_from(nb::handle object) {
    if (auto scalar = scalar_from(object)) return *std::move(scalar);
    const bool is_bytes = PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr());
    if (PySequence_Check(object.ptr()) && !is_bytes) return values_from(object);
    throw nb::type_error("expected a number, a bool, a string or a sequence of numbers.");
}

inline NamedValues named_values_from(nb::handle dict) {
    NamedValues values;
    if (dict.is_none()) return values;
    for (auto [name, value] : nb::cast<nb::dict>(dict)) {
        values.emplace_back(nb::cast<std::string>(nb::str(name)), value_from(value));
    }
    return values;
}

inline std::vector<NamedValues> all_named_values_from(const nb::list& dicts) {
    std::vector<NamedValues> values;
    for (nb::handle each : dicts) values.push_back(named_values_from(each));
    return values;
}

// A non-negative integer of any size, as 32 bits at a time, the lowest first.
inline std::vector<uint32_t> words_from(const nb::int_& number) {
    const size_t bits = nb::cast<size_t>(number.attr("bit_length")());
    const size_t count = std::max<size_t>(1, (bits + 31) / 32);
    const nb::bytes bytes = nb::cast<nb::bytes>(number.attr("to_bytes")(4 * count, "little"));
    std::vector<uint32_t> words(count);
    std::memcpy(words.data(), bytes.c_str(), 4 * count);
    return words;
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

// The state of a generator: two numbers of 128 bits in halves, and half a draw, if it is left over.
inline nb::object object_from(const Rng& rng) {
    auto halves = [](Rng::Wide wide) {
        return nb::make_tuple(static_cast<uint64_t>(wide >> 64), static_cast<uint64_t>(wide));
    };
    return nb::make_tuple(halves(rng.state()), halves(rng.increment()),
                          static_cast<int>(rng.has_half()), rng.half());
}

}  // namespace envfleet
