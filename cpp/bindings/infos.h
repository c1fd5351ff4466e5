// The infos of a turn in Gymnasium's layout: for each key an array and a mask `_key`.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bindings/fresh_arrays.h"
#include "bindings/numpy.h"
#include "engine/rows.h"

namespace envfleet {

namespace nb = nanobind;

// Whose results are asked for: everybody's, or those of some rows, in their order.
class Selection {
  public:
    static Selection all(size_t count) { return {{}, count}; }
    static Selection of(std::span<const int64_t> rows) { return {rows, rows.size()}; }

    size_t size() const { return size_; }
    bool is_all() const { return rows_.data() == nullptr; }
    size_t operator[](size_t place) const {
        return is_all() ? place : static_cast<size_t>(rows_[place]);
    }

  private:
    Selection(std::span<const int64_t> rows, size_t size) : rows_(rows), size_(size) {}

    std::span<const int64_t> rows_;
    size_t size_;
};

// A NumPy array that is kept, and what is needed to copy rows of it.
class Column {
  public:
    explicit Column(nb::handle array) : array_(nb::borrow(array)) {
        if (!PyArray_Check(array.ptr()) || !PyArray_ISCARRAY(numpy())) {
            throw nb::type_error("expected a contiguous array");
        }
        if (PyArray_NDIM(numpy()) < 1) throw nb::value_error("expected one row per environment");
        row_bytes_ = static_cast<size_t>(PyArray_ITEMSIZE(numpy()));
        for (int i = 1; i < PyArray_NDIM(numpy()); ++i) {
            row_bytes_ *= static_cast<size_t>(PyArray_DIM(numpy(), i));
        }
    }

    PyArrayObject* numpy() const { return reinterpret_cast<PyArrayObject*>(array_.ptr()); }
    const nb::object& object() const { return array_; }
    std::byte* data() const { return static_cast<std::byte*>(PyArray_DATA(numpy())); }
    size_t rows() const { return static_cast<size_t>(PyArray_DIM(numpy(), 0)); }
    size_t row_bytes() const { return row_bytes_; }
    bool is_scalar() const { return PyArray_NDIM(numpy()) == 1; }
    Leaf leaf() const { return {data(), row_bytes()}; }

    nb::object copy() const { return fresh_copy(numpy()); }
    nb::object copy(const Selection& rows) const {
        if (rows.is_all()) return copy();
        const Column result = unwritten(rows.size());
        for (size_t place = 0; place < rows.size(); ++place) {
            copy_row(rows[place], result.data(), place);
        }
        return result.object();
    }

    // An array like this one, of so many rows, whose numbers are yet to be written.
    Column unwritten(size_t rows) const {
        auto shape = shape_of(rows);
        return Column(unwritten_array(descr(), PyArray_NDIM(numpy()), shape.data()));
    }

    // Of the rows selected those in the mask, the others zero.
    nb::object copy(const Selection& rows, const std::vector<uint8_t>& mask) const {
        auto shape = shape_of(rows.size());
        const Column result(
            checked(PyArray_Zeros(PyArray_NDIM(numpy()), shape.data(), descr(), 0)));
        for (size_t place = 0; place < rows.size(); ++place) {
            if (mask[place]) copy_row(rows[place], result.data(), place);
        }
        return result.object();
    }

    // One row: an array of its own, or a Python number.
    nb::object row(size_t number) const {
        if (is_scalar()) {
            return checked(PyArray_GETITEM(
                numpy(), reinterpret_cast<const char*>(data() + number * row_bytes())));
        }
        nb::object result =
            checked(PyArray_NewFromDescr(&PyArray_Type, descr(), PyArray_NDIM(numpy()) - 1,
                                         PyArray_DIMS(numpy()) + 1, nullptr, nullptr, 0, nullptr));
        std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(result.ptr())),
                    data() + number * row_bytes(), row_bytes());
        return result;
    }

    static nb::object checked(PyObject* fresh) {
        if (fresh == nullptr) throw nb::python_error();
        return nb::steal(fresh);
    }

  private:
    std::array<npy_intp, NPY_MAXDIMS> shape_of(size_t rows) const {
        std::array<npy_intp, NPY_MAXDIMS> shape;
        std::copy_n(PyArray_DIMS(numpy()), PyArray_NDIM(numpy()), shape.begin());
        shape.front() = static_cast<npy_intp>(rows);
        return shape;
    }
    void copy_row(size_t row, std::byte* target, size_t place) const {
        std::memcpy(target + place * row_bytes(), data() + row * row_bytes(), row_bytes());
    }
    PyArray_Descr* descr() const {  // a reference that the callee steals
        PyArray_Descr* descr = PyArray_DESCR(numpy());
        Py_INCREF(descr);
        return descr;
    }

    nb::object array_;
    size_t row_bytes_;
};

inline nb::object bool_array(const std::vector<uint8_t>& mask) {
    npy_intp size = static_cast<npy_intp>(mask.size());
    nb::object array = Column::checked(PyArray_SimpleNew(1, &size, NPY_BOOL));
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())), mask.data(),
                mask.size());
    return array;
}

class InfoColumns {
  public:
    InfoColumns(std::vector<InfoColumn> kinds, std::vector<Column> values,
                std::vector<Column> final_values)
        : kinds_(std::move(kinds)),
          values_(std::move(values)),
          final_values_(std::move(final_values)) {}

    bool empty() const { return kinds_.empty(); }

    // Adds the infos of the rows as they are after their last turns.
    void add_current(nb::dict& infos, const Turn* turns, const Selection& rows) const {
        std::vector<uint8_t> mask(rows.size());
        for (size_t i = 0; i < kinds_.size(); ++i) {
            if (kinds_[i].marks_integers) continue;
            size_t stepped = 0, reset = 0;
            for (size_t place = 0; place < rows.size(); ++place) {
                const Turn turn = turns[rows[place]];
                const bool is_step = turn == Turn::stepped;
                const bool is_reset = turn != Turn::none && !is_step;
                mask[place] = (is_step && kinds_[i].at_step) || (is_reset && kinds_[i].at_reset);
                stepped += mask[place] && is_step;
                reset += mask[place] && is_reset;
            }
            if (stepped + reset == 0) continue;
            const bool complete = stepped + reset == rows.size();
            nb::object values = complete ? values_[i].copy(rows) : values_[i].copy(rows, mask);
            if (stepped == 0 && !kinds_[i].dtype_at_reset.empty()) {
                values = values.attr("astype")(kinds_[i].dtype_at_reset.c_str());
            }
            if (holds_integers(values_, i, rows, mask)) values = values.attr("astype")("int64");
            add(infos, kinds_[i].name, values, mask);
        }
    }

    // The last infos of episodes that ended in their last turns.
    nb::dict final_infos(const Selection& rows, const std::vector<uint8_t>& ended) const {
        nb::dict infos;
        for (size_t i = 0; i < kinds_.size(); ++i) {
            if (!kinds_[i].at_step || kinds_[i].marks_integers) continue;
            nb::object values = final_values_[i].copy(rows, ended);
            if (holds_integers(final_values_, i, rows, ended)) {
                values = values.attr("astype")("int64");
            }
            add(infos, kinds_[i].name, values, ended);
        }
        return infos;
    }

    static void add(nb::dict& infos, const std::string& name, const nb::object& values,
                    const std::vector<uint8_t>& mask) {
        infos[name.c_str()] = values;
        infos[("_" + name).c_str()] = bool_array(mask);
    }

  private:
    // Whether all numbers of a column that are shown are integers to Python. One float among them
    // makes floats of all, as everywhere in NumPy.
    bool holds_integers(const std::vector<Column>& values, size_t column, const Selection& rows,
                        const std::vector<uint8_t>& mask) const {
        if (column + 1 == kinds_.size() || !kinds_[column + 1].marks_integers) return false;
        const std::byte* marks = values[column + 1].data();
        for (size_t place = 0; place < rows.size(); ++place) {
            if (mask[place] && marks[rows[place]] == std::byte{0}) return false;
        }
        return true;
    }

    std::vector<InfoColumn> kinds_;
    std::vector<Column> values_;
    std::vector<Column> final_values_;
};

}  // namespace envfleet
