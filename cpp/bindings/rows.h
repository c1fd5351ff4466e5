// What a shard does for every environment at every step, done without the interpreter.
//
// Both classes know only the plain case: an array that fits its row exactly, an info dict of the
// numbers it held last time. Everything else goes to a Python function, which knows all cases and
// raises the errors.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/numpy.h"

namespace envfleet {

namespace nb = nanobind;

// Copies observations into the rows of one array.
class RowWriter {
  public:
    RowWriter(nb::object column, nb::object otherwise)
        : column_(std::move(column)), otherwise_(std::move(otherwise)) {
        if (!PyArray_CheckExact(column_.ptr())) throw nb::type_error("column must be an array");
        array_ = reinterpret_cast<PyArrayObject*>(column_.ptr());
        if (PyArray_NDIM(array_) < 1 || !PyArray_ISWRITEABLE(array_) ||
            !PyArray_IS_C_CONTIGUOUS(array_)) {
            throw nb::value_error("column must be writeable, contiguous and have rows");
        }
        row_bytes_ = static_cast<size_t>(PyArray_STRIDE(array_, 0));
        copies_bytes_ = !PyDataType_REFCHK(PyArray_DESCR(array_));
    }

    void write(size_t row, nb::handle value) {
        if (!copy(row, value)) otherwise_(row, value);
    }

    // False: the value does not fit exactly, and nothing was written.
    bool copy(size_t row, nb::handle value) const {
        if (row >= rows()) throw nb::index_error("no such row");
        if (!copies_bytes_ || !fits(value.ptr())) return false;
        auto* source = reinterpret_cast<PyArrayObject*>(value.ptr());
        const auto bytes = static_cast<size_t>(PyArray_NBYTES(source));
        std::memcpy(PyArray_BYTES(array_) + row * row_bytes_, PyArray_DATA(source), bytes);
        return true;
    }

    size_t rows() const { return static_cast<size_t>(PyArray_DIM(array_, 0)); }

  private:
    bool fits(PyObject* value) const {
        if (!PyArray_CheckExact(value)) return false;
        auto* source = reinterpret_cast<PyArrayObject*>(value);
        const int dims = PyArray_NDIM(array_) - 1;
        return PyArray_DESCR(source) == PyArray_DESCR(array_) && PyArray_NDIM(source) == dims &&
               PyArray_CompareLists(PyArray_DIMS(source), PyArray_DIMS(array_) + 1, dims) &&
               PyArray_IS_C_CONTIGUOUS(source);
    }

    nb::object column_;
    nb::object otherwise_;
    PyArrayObject* array_;
    size_t row_bytes_;
    bool copies_bytes_;
};

// Packs info dicts into rows of eight-byte slots, as long as they look like the one it learned
// last.
class InfoPacker {
  public:
    using Bytes = nb::ndarray<uint8_t, nb::c_contig, nb::device::cpu>;

    InfoPacker(Bytes rows, Bytes kinds) : rows_(std::move(rows)), kinds_(std::move(kinds)) {
        if (rows_.ndim() != 2 || kinds_.ndim() != 1 || rows_.shape(0) != kinds_.shape(0)) {
            throw nb::value_error("expected rows of shape (n, bytes) and kinds of shape (n,)");
        }
    }

    // Forgets the last turn's infos.
    void begin() {
        if (dirty_) std::memset(kinds_.data(), 0, kinds_.size());
        dirty_ = false;
    }

    // False: this one is not like the last, and its kind is not set.
    bool put(size_t row, nb::handle info) {
        if (row >= kinds_.size()) throw nb::index_error("no such row");
        dirty_ = true;
        if (!pack(info.ptr(), rows_.data() + row * rows_.shape(1))) return false;
        kinds_.data()[row] = kind_;
        return true;
    }

    // From now on dicts with these keys, in this order, and values of exactly these types are
    // packed as `kind`. Formats: d for float and its subclasses, q for int, ? for bool, n for NumPy
    // scalars.
    void learn(uint8_t kind, nb::tuple keys, nb::tuple types, const std::string& formats) {
        if (keys.size() != types.size() || keys.size() != formats.size() ||
            formats.size() * slot > rows_.shape(1)) {
            throw nb::value_error("keys, types and formats must be of one length and fit a row");
        }
        fields_.clear();
        for (size_t i = 0; i < formats.size(); ++i)
            fields_.push_back({keys[i], types[i], formats[i]});
        kind_ = kind;
    }

  private:
    static constexpr size_t slot = 8;
    struct Field {
        nb::object key;
        nb::object type;
        char format;
    };

    bool pack(PyObject* info, uint8_t* row) const {
        if (!PyDict_CheckExact(info) ||
            PyDict_Size(info) != static_cast<Py_ssize_t>(fields_.size())) {
            return false;
        }
        PyObject *key, *value;
        Py_ssize_t position = 0;
        for (const Field& field : fields_) {
            // By identity: the keys are constants of the environment's code, the same objects every
            // step.
            if (!PyDict_Next(info, &position, &key, &value) || key != field.key.ptr() ||
                reinterpret_cast<PyObject*>(Py_TYPE(value)) != field.type.ptr() ||
                !pack_value(field.format, value, row)) {
                return false;
            }
            row += slot;
        }
        return true;
    }

    static bool pack_value(char format, PyObject* value, uint8_t* where) {
        if (format == 'd') {
            const double number = PyFloat_AS_DOUBLE(value);
            std::memcpy(where, &number, sizeof number);
            return true;
        }
        if (format == '?') {
            *where = value == Py_True;
            return true;
        }
        if (format == 'n') {
            PyArray_ScalarAsCtype(value, where);
            return true;
        }
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        std::memcpy(where, &number, sizeof number);
        return overflow == 0;
    }

    Bytes rows_;
    Bytes kinds_;
    std::vector<Field> fields_;
    uint8_t kind_ = 0;
    bool dirty_ = true;
};

// Publishes all that an environment returned from a step, flags apart, into its row.
class RowPublisher {
  public:
    using Rewards = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    RowPublisher(nb::object observations, Rewards rewards, nb::object infos)
        : keep_observations_(std::move(observations)),
          keep_infos_(std::move(infos)),
          observations_(nb::cast<RowWriter*>(keep_observations_)),
          infos_(nb::cast<InfoPacker*>(keep_infos_)),
          rewards_(std::move(rewards)) {
        if (rewards_.size() != observations_->rows())
            throw nb::value_error("expected a reward a row");
    }

    // False: something is not plain; whoever asked is to publish the row by other means.
    bool put(size_t row, nb::handle observation, nb::handle reward, nb::handle info) {
        if (!observations_->copy(row, observation) || !PyFloat_Check(reward.ptr())) return false;
        rewards_.data()[row] = PyFloat_AS_DOUBLE(reward.ptr());
        const bool empty = PyDict_CheckExact(info.ptr()) && PyDict_Size(info.ptr()) == 0;
        return empty || infos_->put(row, info);
    }

  private:
    nb::object keep_observations_;
    nb::object keep_infos_;
    RowWriter* observations_;
    InfoPacker* infos_;
    Rewards rewards_;
};

}  // namespace envfleet
