// Sums, norms and limits in NumPy's order of operations, so that not even the last digit differs.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/numpy_math.h"
#include "engine/rows.h"

namespace envfleet {

// np.sum of term(first), ..., term(first + count - 1): few one by one, more in eight rows, many
// half by half.
template <class Real, class Term>
Real numpy_sum(const Term& term, size_t first, size_t count) {
    if (count < 8) {
        Real sum = 0;
        for (size_t i = 0; i < count; ++i) sum += term(first + i);
        return sum;
    }
    if (count > 128) {
        const size_t half = count / 2 - count / 2 % 8;
        return numpy_sum<Real>(term, first, half) +
               numpy_sum<Real>(term, first + half, count - half);
    }
    Real r[8];
    for (size_t i = 0; i < 8; ++i) r[i] = term(first + i);
    const size_t even = count - count % 8;
    for (size_t i = 8; i < even; ++i) r[i % 8] += term(first + i);
    Real sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (size_t i = even; i < count; ++i) sum += term(first + i);
    return sum;
}

// np.sum(np.square(numbers)), in the numbers' precision.
template <class Real>
Real sum_of_squares(const Real* numbers, size_t count) {
    return numpy_sum<Real>([&](size_t i) { return numbers[i] * numbers[i]; }, 0, count);
}

// weight * np.sum(np.square(action)): actions are single precision, and so is the result, for
// Python's floats give way to NumPy's.
inline float control_cost(double weight, const float* action, size_t count) {
    return static_cast<float>(weight) * sum_of_squares(action, count);
}

// np.linalg.norm.
inline double norm(const double* vector, size_t count) {
    return std::sqrt(numpy_math.dot(vector, vector, count));
}

// From one point in space to another.
inline std::array<double, 3> difference(const double* to, const double* from) {
    return {to[0] - from[0], to[1] - from[1], to[2] - from[2]};
}

// np.clip: what is not a number stays so.
inline double clip(double x, double low, double high) {
    return std::isnan(x) ? x : std::min(std::max(x, low), high);
}

inline bool all_finite(std::span<const double> numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
}

// Writes numbers one after another.
class Writer {
  public:
    explicit Writer(double* out) : next_(out) {}
    void put(double number) { *next_++ = number; }
    void put(std::span<const double> numbers) {
        next_ = std::copy(numbers.begin(), numbers.end(), next_);
    }
    void put_clipped(std::span<const double> numbers, double low, double high) {
        for (const double number : numbers) put(clip(number, low, high));
    }

  private:
    double* next_;
};

// A reward for being alive is an integer in the infos where Python was given an integer: the
// number, then whether it is one.
inline InfoColumn survival() { return {"reward_survive", "float64", {}, true, false}; }
inline InfoColumn survival_mark() {
    return {.name = "reward_survive is whole", .dtype = "bool", .marks_integers = true};
}
inline void write_survival(const Row& out, size_t column, double value, bool is_integer) {
    *out.leaf<double>(column) = is_integer ? value + 0.0 : value;  // there is no integer -0
    *out.leaf<bool>(column + 1) = is_integer;
}

}  // namespace envfleet
