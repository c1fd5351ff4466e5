// What a shard does for every environment at every step, done without the interpreter.
//
// Both classes know only the plain case: an array that fits its row exactly, an info dict of the
// numbers it held last time. Everything else goes to a Python function, which knows all cases and
// raises the errors.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/digests.h"
#include "bindings/numpy.h"

namespace envfleet {

namespace nb = nanobind;

// Copies observations into the rows of one array; and, while they are in the cache, into the same
// rows of the page that is open, if one is.
class RowWriter {
  public:
    using OpenPage = nb::ndarray<const uint8_t, nb::shape<1>, nb::c_contig, nb::device::cpu>;

    // `pages`: arrays like the column. `open_page` holds the number of one of them, counted from 1,
    // or 0.
    RowWriter(nb::object column, nb::object otherwise, bool refuse_nan, const nb::list& pages,
              OpenPage open_page)
        : column_(std::move(column)),
          otherwise_(std::move(otherwise)),
          refuse_nan_(refuse_nan),
          open_page_(std::move(open_page)) {
        array_ = checked(column_);
        // Not its stride: that of an array with one row can be anything.
        row_bytes_ = rows() == 0 ? 0 : static_cast<size_t>(PyArray_NBYTES(array_)) / rows();
        copies_bytes_ = !PyDataType_REFCHK(PyArray_DESCR(array_));
        for (nb::handle page : pages) {
            keep_pages_.push_back(nb::borrow(page));
            PyArrayObject* array = checked(keep_pages_.back());
            if (PyArray_NBYTES(array) != PyArray_NBYTES(array_) || !copies_bytes_) {
                throw nb::value_error("pages must be like the column");
            }
            pages_.push_back(PyArray_BYTES(array));
        }
    }

    void write(size_t row, nb::handle value) {
        if (copy(row, value)) return;
        otherwise_(row, value);
        copy_to_page(row);
    }

    // False: the value does not fit exactly, and nothing was written.
    bool copy(size_t row, nb::handle value) const {
        if (row >= rows()) throw nb::index_error("no such row");
        if (!copies_bytes_ || !fits(value.ptr())) return false;
        auto* source = reinterpret_cast<PyArrayObject*>(value.ptr());
        if (refuse_nan_ && has_nan(source)) return false;
        std::memcpy(place(row), PyArray_DATA(source), row_bytes_);
        copy_to_page(row);
        return true;
    }

    size_t rows() const { return static_cast<size_t>(PyArray_DIM(array_, 0)); }

  private:
    static PyArrayObject* checked(const nb::object& column) {
        if (!PyArray_CheckExact(column.ptr())) throw nb::type_error("column must be an array");
        auto* array = reinterpret_cast<PyArrayObject*>(column.ptr());
        if (PyArray_NDIM(array) < 1 || !PyArray_ISWRITEABLE(array) ||
            !PyArray_IS_C_CONTIGUOUS(array)) {
            throw nb::value_error("column must be writeable, contiguous and have rows");
        }
        return array;
    }

    char* place(size_t row) const { return PyArray_BYTES(array_) + row * row_bytes_; }

    void copy_to_page(size_t row) const {
        const size_t page = *open_page_.data();
        if (page == 0 || page > pages_.size() || row >= rows()) return;
        std::memcpy(pages_[page - 1] + row * row_bytes_, place(row), row_bytes_);
    }

    bool fits(PyObject* value) const {
        if (!PyArray_CheckExact(value)) return false;
        auto* source = reinterpret_cast<PyArrayObject*>(value);
        const int dims = PyArray_NDIM(array_) - 1;
        return PyArray_DESCR(source) == PyArray_DESCR(array_) && PyArray_NDIM(source) == dims &&
               PyArray_CompareLists(PyArray_DIMS(source), PyArray_DIMS(array_) + 1, dims) &&
               PyArray_IS_C_CONTIGUOUS(source);
    }

    static bool has_nan(PyArrayObject* array) {
        const auto size = static_cast<size_t>(PyArray_SIZE(array));
        if (PyArray_TYPE(array) == NPY_FLOAT32) return any_nan<float>(array, size);
        if (PyArray_TYPE(array) == NPY_FLOAT64) return any_nan<double>(array, size);
        // Rare ones are for Python to look at.
        return PyTypeNum_ISFLOAT(PyArray_TYPE(array)) || PyTypeNum_ISCOMPLEX(PyArray_TYPE(array));
    }
    template <class Number>
    static bool any_nan(PyArrayObject* array, size_t size) {
        const auto* values = static_cast<const Number*>(PyArray_DATA(array));
        return std::any_of(values, values + size, [](Number x) { return std::isnan(x); });
    }

    nb::object column_;
    nb::object otherwise_;
    bool refuse_nan_;
    PyArrayObject* array_;
    size_t row_bytes_;
    bool copies_bytes_;
    std::vector<nb::object> keep_pages_;
    std::vector<char*> pages_;
    OpenPage open_page_;
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

    void begin_row(size_t row) {
        if (row >= kinds_.size()) throw nb::index_error("no such row");
        kinds_.data()[row] = 0;
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
    // scalars. `digest` stands for the keys and types.
    void learn(uint8_t kind, nb::tuple keys, nb::tuple types, const std::string& formats,
               uint64_t digest) {
        if (keys.size() != types.size() || keys.size() != formats.size() ||
            formats.size() * slot > rows_.shape(1)) {
            throw nb::value_error("keys, types and formats must be of one length and fit a row");
        }
        for (size_t i = 0; i < formats.size(); ++i) check_format(formats[i], types[i].ptr());
        fields_.clear();
        for (size_t i = 0; i < formats.size(); ++i)
            fields_.push_back({keys[i], types[i], formats[i]});
        kind_ = kind;
        digest_ = digest;
    }

    // Of the info that was put last, into this row, or of none; unknown if it is not like what was
    // learned.
    uint64_t digest(size_t row) const {
        if (row >= kinds_.size()) throw nb::index_error("no such row");
        const uint8_t kind = kinds_.data()[row];
        if (kind == 0) return digest_of(nullptr, 0, 0);
        if (kind != kind_) return Digests::unknown;
        return digest_of(rows_.data() + row * rows_.shape(1), fields_.size() * slot, digest_);
    }

  private:
    static constexpr size_t slot = 8;
    struct Field {
        nb::object key;
        nb::object type;
        char format;
    };

    // What is packed by a format must be of a type for which that reads no more than there is, and
    // writes no more than a slot.
    static void check_format(char format, PyObject* type) {
        if (!PyType_Check(type)) throw nb::type_error("types must be types");
        auto* kind = reinterpret_cast<PyTypeObject*>(type);
        const bool fits = (format == 'd' && PyType_IsSubtype(kind, &PyFloat_Type)) ||
                          (format == 'q' && PyType_IsSubtype(kind, &PyLong_Type)) ||
                          (format == '?' && kind == &PyBool_Type) ||
                          (format == 'n' && is_small_number(type));
        if (!fits) throw nb::value_error("a format does not fit its type");
    }
    static bool is_small_number(PyObject* type) {
        auto* kind = reinterpret_cast<PyTypeObject*>(type);
        if (!PyType_IsSubtype(kind, &PyGenericArrType_Type)) return false;
        PyArray_Descr* descr = PyArray_DescrFromTypeObject(type);
        if (descr == nullptr) throw nb::python_error();
        const bool is_number =
            PyTypeNum_ISNUMBER(descr->type_num) || PyTypeNum_ISBOOL(descr->type_num);
        const bool small = is_number && static_cast<size_t>(PyDataType_ELSIZE(descr)) <= slot;
        Py_DECREF(descr);
        return small;
    }

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
        std::memset(where, 0, slot);  // they may need less
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
    uint64_t digest_ = 0;
    bool dirty_ = true;
};

// Where a worker notes which row it works on, and that it has moved on: whoever waits for it can
// tell which environment it died in, and whether it is stuck.
class Progress {
  public:
    using Cell = nb::ndarray<uint64_t, nb::shape<1>, nb::c_contig, nb::device::cpu>;

    explicit Progress(Cell cell) : cell_(std::move(cell)) {}

    // The cell counts in its upper half and names the row in its lower one.
    void enter(size_t row) {
        std::atomic_ref<uint64_t> cell(*cell_.data());
        const uint64_t count = (cell.load(std::memory_order_relaxed) >> 32) + 1;
        cell.store(count << 32 | static_cast<uint32_t>(row), std::memory_order_relaxed);
    }

  private:
    Cell cell_;
};

// Publishes all that an environment returned from a step, flags apart, into its row.
class RowPublisher {
  public:
    using Rewards = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    // Of an observation that is an array: (None, its RowWriter); of a dict: one (key, RowWriter) a
    // key.
    RowPublisher(nb::list observations, Rewards rewards, nb::object infos, nb::object progress,
                 bool refuse_nan)
        : keep_infos_(std::move(infos)),
          keep_progress_(std::move(progress)),
          infos_(nb::cast<InfoPacker*>(keep_infos_)),
          progress_(nb::cast<Progress*>(keep_progress_)),
          rewards_(std::move(rewards)),
          refuse_nan_(refuse_nan) {
        for (nb::handle part : observations) {
            nb::object key = part[0], writer = part[1];
            const RowWriter* rows = nb::cast<RowWriter*>(writer);
            if (rows == nullptr) throw nb::type_error("expected a RowWriter");
            if (rewards_.size() != rows->rows()) throw nb::value_error("expected a reward a row");
            parts_.push_back({std::move(key), std::move(writer), rows});
        }
        if (parts_.empty()) throw nb::value_error("expected something to publish");
    }

    // False: something is not plain; whoever asked is to publish the row by other means. Else the
    // work on the next row begins.
    bool put(size_t row, nb::handle observation, nb::handle reward, nb::handle info) {
        if (!copy(row, observation.ptr()) || !PyFloat_Check(reward.ptr())) return false;
        const double number = PyFloat_AS_DOUBLE(reward.ptr());
        if (refuse_nan_ && std::isnan(number)) return false;
        rewards_.data()[row] = number;
        const bool empty = PyDict_CheckExact(info.ptr()) && PyDict_Size(info.ptr()) == 0;
        if (!empty && !infos_->put(row, info)) return false;
        progress_->enter(row + 1);
        return true;
    }

  private:
    struct Part {
        nb::object key;
        nb::object keep;
        const RowWriter* rows;
    };

    bool copy(size_t row, PyObject* observation) const {
        if (parts_.front().key.is_none()) return parts_.front().rows->copy(row, observation);
        if (!PyDict_CheckExact(observation) ||
            PyDict_Size(observation) != static_cast<Py_ssize_t>(parts_.size())) {
            return false;
        }
        return std::all_of(parts_.begin(), parts_.end(), [&](const Part& part) {
            PyObject* value = PyDict_GetItem(observation, part.key.ptr());
            return value != nullptr && part.rows->copy(row, value);
        });
    }

    std::vector<Part> parts_;
    nb::object keep_infos_;
    nb::object keep_progress_;
    InfoPacker* infos_;
    Progress* progress_;
    Rewards rewards_;
    bool refuse_nan_;
};

}  // namespace envfleet
