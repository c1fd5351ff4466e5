// Arguments that are just what is asked for. All others are for Python to look at.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/infos.h"
#include "bindings/numpy.h"
#include "bindings/pool_arrays.h"
#include "engine/any_pool.h"

namespace envfleet {

namespace nb = nanobind;

// Sets the flags of these rows. False, and nothing is changed, if one of them was set before, or a
// row is named twice.
inline bool set_all_or_none(uint8_t* flags, std::span<const int64_t> rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
        if (std::exchange(flags[rows[i]], uint8_t{1}) == 0) continue;
        for (size_t set = 0; set < i; ++set) flags[rows[set]] = 0;
        return false;
    }
    return true;
}

class PlainArguments {
  public:
    // The arrays and the pool outlive this.
    PlainArguments(const PoolArrays& arrays, const AnyPool& pool, Autoreset autoreset)
        : arrays_(arrays),
          wanted_(arrays.actions.numpy()),
          num_envs_(arrays.rewards.rows()),
          limits_(pool.action_limits()),
          copies_actions_(pool.reads_limited_actions()),
          must_not_be_finished_(autoreset == Autoreset::disabled) {}

    // The actions of these rows where they lie, if they are exactly what the environments take.
    const std::byte* actions(nb::handle actions, const Selection& rows) const {
        if (!PyArray_Check(actions.ptr())) return nullptr;
        auto* array = reinterpret_cast<PyArrayObject*>(actions.ptr());
        const int dims = PyArray_NDIM(wanted_);
        if (PyArray_TYPE(array) != PyArray_TYPE(wanted_) || !PyArray_ISCARRAY_RO(array) ||
            PyArray_NDIM(array) != dims ||
            static_cast<size_t>(PyArray_DIM(array, 0)) != rows.size() ||
            !PyArray_CompareLists(PyArray_DIMS(array) + 1, PyArray_DIMS(wanted_) + 1, dims - 1)) {
            return nullptr;
        }
        const auto* data = static_cast<const std::byte*>(PyArray_DATA(array));
        if (must_not_be_finished_ && any_finished(rows)) return nullptr;
        if (!all_allowed(data, rows.size())) return nullptr;
        return copies_actions_ && rows.is_all() ? stored(data) : data;
    }

    // Numbers of rows where they lie, if they are an array of just that.
    std::optional<std::span<const int64_t>> rows(nb::handle env_ids) const {
        if (!PyArray_Check(env_ids.ptr())) return {};
        auto* array = reinterpret_cast<PyArrayObject*>(env_ids.ptr());
        if (PyArray_TYPE(array) != NPY_INT64 || !PyArray_ISCARRAY_RO(array) ||
            PyArray_NDIM(array) != 1) {
            return {};
        }
        const std::span found(static_cast<const int64_t*>(PyArray_DATA(array)),
                              static_cast<size_t>(PyArray_DIM(array, 0)));
        const auto exists = [this](int64_t row) { return static_cast<uint64_t>(row) < num_envs_; };
        if (!std::all_of(found.begin(), found.end(), exists)) return {};
        return found;
    }
    std::span<const int64_t> checked_rows(nb::handle env_ids) const {
        const auto found = rows(env_ids);
        if (!found) throw nb::value_error("expected an int64 array of environments");
        return *found;
    }

    // What is wrong with the actions of all rows: nothing mostly. They are of the right type, or of
    // half its precision.
    std::string problem_with(const std::byte* actions, bool is_whole) const {
        const Selection everyone = Selection::all(num_envs_);
        if (must_not_be_finished_ && any_finished(everyone)) {
            return "some episodes have ended and autoreset is disabled: reset() those first, with "
                   "a mask";
        }
        return is_whole ? problem_among(reinterpret_cast<const int64_t*>(actions))
                        : problem_among(reinterpret_cast<const int32_t*>(actions));
    }

  private:
    template <class Number>
    std::string problem_among(const Number* numbers) const {
        if (all_allowed(numbers, num_envs_)) return {};
        size_t place = 0;
        while (is_allowed(place, numbers[place])) ++place;
        const size_t row = place / limits_.size();
        return "action[" + std::to_string(row) + "] of environment " + std::to_string(row) +
               " is outside the action space: " + std::to_string(numbers[place]) +
               ", counted from 0. Nothing was stepped";
    }

    bool is_allowed(size_t place, int64_t number) const {
        const int64_t limit = limits_[place % limits_.size()];
        return static_cast<uint64_t>(number) < static_cast<uint64_t>(limit);
    }

    // The actions of all rows where nobody else can change them; none if somebody just did.
    const std::byte* stored(const std::byte* actions) const {
        std::byte* own = arrays_.actions.data();
        std::memmove(own, actions, num_envs_ * arrays_.actions.row_bytes());
        return all_allowed(own, num_envs_) ? own : nullptr;
    }

    bool any_finished(const Selection& rows) const {
        bool any = false;
        for (size_t place = 0; place < rows.size(); ++place) {
            any |= arrays_.finished.data()[rows[place]] != std::byte{0};
        }
        return any;
    }

    bool all_allowed(const std::byte* actions, size_t rows) const {
        return all_allowed(reinterpret_cast<const int64_t*>(actions), rows);
    }
    template <class Number>
    bool all_allowed(const Number* numbers, size_t rows) const {
        // A stride known to be one lets the compiler look at many numbers at once.
        constexpr std::integral_constant<size_t, 1> one;
        if (limits_.size() == 1) return all_below(limits_.front(), numbers, rows, one);
        for (size_t place = 0; place < limits_.size(); ++place) {
            if (!all_below(limits_[place], numbers + place, rows, limits_.size())) return false;
        }
        return true;
    }

    template <class Number, class Stride>
    static bool all_below(int64_t limit, const Number* numbers, size_t rows, Stride stride) {
        bool below = true;
        for (size_t i = 0; i < rows; ++i) {
            below &= static_cast<uint64_t>(static_cast<int64_t>(numbers[i * stride])) <
                     static_cast<uint64_t>(limit);
        }
        return below;
    }

    const PoolArrays& arrays_;
    PyArrayObject* wanted_;  // an array like those that actions should be
    size_t num_envs_;
    const std::vector<int64_t>& limits_;
    bool copies_actions_;
    bool must_not_be_finished_;
};

}  // namespace envfleet
