// What environments have shown since their episodes began, as one number each: whoever shows the
// same again comes to the same number.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "bindings/numpy.h"

namespace envfleet {

namespace nb = nanobind;

// Both halves of a product, one upon the other: every bit of either factor matters to all of it.
inline uint64_t folded_product(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// A hash of some bytes, after others that came to `before`. Two chains at a time, as products take
// the processor a while.
inline uint64_t digest_of(const void* bytes, size_t size, uint64_t before) {
    constexpr uint64_t salts[] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3};
    const auto* data = static_cast<const unsigned char*>(bytes);
    const auto word = [&data](size_t place) {
        uint64_t value;
        std::memcpy(&value, data + place, sizeof value);
        return value;
    };
    uint64_t one = before ^ salts[0], other = before ^ salts[2];
    size_t left = size;
    for (; left >= 32; left -= 32, data += 32) {
        one = folded_product(word(0) ^ salts[1], word(8) ^ one);
        other = folded_product(word(16) ^ salts[2], word(24) ^ other);
    }
    one = folded_product(one ^ salts[1], other);
    for (; left >= 8; left -= 8, data += 8)
        one = folded_product(word(0) ^ salts[1], one ^ salts[2]);
    uint64_t rest = 0;
    if (left != 0) std::memcpy(&rest, data, left);
    return folded_product(folded_product(rest ^ salts[1], one ^ salts[0]), size ^ salts[2]);
}

// The running digests of a shard's environments, kept where they outlive the process.
class Digests {
  public:
    using Rewards = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
    using Cells = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

    // What nobody can tell: something was shown that cannot be compared.
    static constexpr uint64_t unknown = 0;

    // `observations`: arrays with one row per environment.
    Digests(const nb::list& observations, Rewards rewards, Cells cells)
        : rewards_(std::move(rewards)), cells_(std::move(cells)) {
        if (rewards_.size() != cells_.size()) throw nb::value_error("expected a reward a row");
        for (nb::handle column : observations) {
            if (!PyArray_CheckExact(column.ptr())) throw nb::type_error("expected arrays");
            auto* array = reinterpret_cast<PyArrayObject*>(column.ptr());
            if (PyArray_NDIM(array) < 1 || !PyArray_IS_C_CONTIGUOUS(array) ||
                PyDataType_REFCHK(PyArray_DESCR(array)) ||
                static_cast<size_t>(PyArray_DIM(array, 0)) != cells_.size()) {
                throw nb::value_error("expected contiguous arrays of numbers, one row a reward");
            }
            const auto bytes = static_cast<size_t>(PyArray_NBYTES(array));
            columns_.push_back({nb::borrow(column), PyArray_BYTES(array),
                                cells_.size() == 0 ? 0 : bytes / cells_.size()});
        }
    }

    // An episode begins: with the observation that lies in the row, and an info with this digest.
    void begin(size_t row, uint64_t info) { put(row, with_observation(row, info), info); }

    // A step came to what lies in the row, and to this.
    void add(size_t row, bool terminated, bool truncated, uint64_t info) {
        check(row);
        const uint64_t before = cells_.data()[row];
        if (before == unknown) return;
        struct {
            uint64_t before, info;
            double reward;
            uint64_t flags;
        } const step{before, info, rewards_.data()[row], 2u * terminated + truncated};
        put(row, with_observation(row, digest_of(&step, sizeof step, 0)), info);
    }

  private:
    struct Column {
        nb::object keep;
        const char* data;
        size_t row_bytes;
    };

    void check(size_t row) const {
        if (row >= cells_.size()) throw nb::index_error("no such row");
    }
    uint64_t with_observation(size_t row, uint64_t digest) const {
        check(row);
        for (const Column& column : columns_)
            digest = digest_of(column.data + row * column.row_bytes, column.row_bytes, digest);
        return digest;
    }
    void put(size_t row, uint64_t digest, uint64_t info) {
        cells_.data()[row] = info == unknown ? unknown : digest == unknown ? 1 : digest;
    }

    std::vector<Column> columns_;
    Rewards rewards_;
    Cells cells_;
};

}  // namespace envfleet
