// The kernels of one instruction set. A file that includes this says which: it defines
// ENVFLEET_KERNELS, what the table is called, ENVFLEET_KERNELS_NAME, a namespace
// ENVFLEET_KERNELS_SPACE and ENVFLEET_LANES, the floats in a vector; and it is compiled with the
// flags of that instruction set. No function of the standard library is used, see vectors.h.
#include <cstddef>
#include <cstdint>

#include "learner/kernels.h"

namespace envfleet::learner {
namespace ENVFLEET_KERNELS_SPACE {
namespace {

constexpr int lanes = ENVFLEET_LANES;

#include "learner/vectors.h"

// How much of c is kept in registers at once: rows * vectors of it, some of b beside.
#if ENVFLEET_LANES == 16
constexpr int most_vectors = 4, tile_rows[] = {0, 12, 12, 0, 6};  // 32 registers
#elif ENVFLEET_LANES == 8
constexpr int most_vectors = 2, tile_rows[] = {0, 8, 6};  // 16 registers
#elif defined(__aarch64__)
constexpr int most_vectors = 4, tile_rows[] = {0, 8, 8, 0, 6};  // 32 registers
#else
constexpr int most_vectors = 2, tile_rows[] = {0, 8, 4};  // 16 registers, and no multiply-add
#endif

template <int rows, int vectors>
ENVFLEET_INLINE void tile(const Product& product, ptrdiff_t row, ptrdiff_t column) {
    const float* a = product.a + row * product.a_row;
    const float* b = product.b + column;
    float* c = product.c + row * product.c_row + column;
    const ptrdiff_t left = product.columns - column;
    const bool whole = left >= vectors * lanes;
    Vector sums[rows][vectors];
    for (int i = 0; i < rows; ++i) {
        const Vector start = product.bias ? all(product.bias[row + i]) : Vector{};
        for (int j = 0; j < vectors; ++j) sums[i][j] = start;
    }
    const ptrdiff_t a_row = product.a_row, a_column = product.a_column, b_row = product.b_row;
    for (ptrdiff_t k = 0; k < product.depth; ++k, a += a_column, b += b_row) {
        Vector shared[vectors];
        for (int j = 0; j < vectors; ++j) shared[j] = load(b + j * lanes);
        for (int i = 0; i < rows; ++i) {
            const Vector factor = all(a[i * a_row]);
            for (int j = 0; j < vectors; ++j) sums[i][j] += factor * shared[j];
        }
    }
    for (int i = 0; i < rows; ++i, c += product.c_row) {
        if (whole) {
            for (int j = 0; j < vectors; ++j) {
                float* to = c + j * lanes;
                store(to, product.accumulate ? load(to) + sums[i][j] : sums[i][j]);
            }
        } else {
            float parts[vectors * lanes];
            for (int j = 0; j < vectors; ++j) store(parts + j * lanes, sums[i][j]);
            for (ptrdiff_t j = 0; j < left; ++j)
                c[j] = (product.accumulate ? c[j] : 0.0f) + parts[j];
        }
    }
}

template <int vectors>
void panel(const Product& product, ptrdiff_t column) {
    constexpr int most = tile_rows[vectors];
    ptrdiff_t row = 0;
    for (; row + most <= product.rows; row += most) tile<most, vectors>(product, row, column);
    if constexpr (most > 8) {
        if (row + 8 <= product.rows) tile<8, vectors>(product, row, column), row += 8;
    }
    if constexpr (most > 4) {
        if (row + 4 <= product.rows) tile<4, vectors>(product, row, column), row += 4;
    }
    if (row + 2 <= product.rows) tile<2, vectors>(product, row, column), row += 2;
    if (row < product.rows) tile<1, vectors>(product, row, column);
}

void multiply(const Product& product) {
    ptrdiff_t column = 0;
    const auto left = [&] { return product.columns - column; };
    if constexpr (most_vectors == 4) {
        for (; left() > 2 * lanes; column += 4 * lanes) panel<4>(product, column);
    }
    for (; left() > lanes; column += 2 * lanes) panel<2>(product, column);
    if (left() > 0) panel<1>(product, column);
}

void transpose(const float* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns, float* to,
               ptrdiff_t to_row) {
    typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef int32_t Places __attribute__((vector_size(16)));
    const auto in = [&](ptrdiff_t i, ptrdiff_t j) {
        return *reinterpret_cast<const Four*>(from + i * from_row + j);
    };
    const auto out = [&](ptrdiff_t j, ptrdiff_t i, Four value) {
        *reinterpret_cast<Four*>(to + j * to_row + i) = value;
    };
    const ptrdiff_t whole_rows = rows & ~ptrdiff_t{3}, whole_columns = columns & ~ptrdiff_t{3};
    for (ptrdiff_t i = 0; i < whole_rows; i += 4) {
        for (ptrdiff_t j = 0; j < whole_columns; j += 4) {
            const Four a = in(i, j), b = in(i + 1, j), c = in(i + 2, j), d = in(i + 3, j);
            const Four low_ab = __builtin_shuffle(a, b, Places{0, 4, 1, 5});
            const Four high_ab = __builtin_shuffle(a, b, Places{2, 6, 3, 7});
            const Four low_cd = __builtin_shuffle(c, d, Places{0, 4, 1, 5});
            const Four high_cd = __builtin_shuffle(c, d, Places{2, 6, 3, 7});
            out(j, i, __builtin_shuffle(low_ab, low_cd, Places{0, 1, 4, 5}));
            out(j + 1, i, __builtin_shuffle(low_ab, low_cd, Places{2, 3, 6, 7}));
            out(j + 2, i, __builtin_shuffle(high_ab, high_cd, Places{0, 1, 4, 5}));
            out(j + 3, i, __builtin_shuffle(high_ab, high_cd, Places{2, 3, 6, 7}));
        }
    }
    for (ptrdiff_t i = 0; i < rows; ++i) {
        for (ptrdiff_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
            to[j * to_row + i] = from[i * from_row + j];
        }
    }
}

void tanh(float* values, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) store(values + i, tanh_of(load(values + i)));
}

// Not `x > 0 ? x : 0`, which would hide NaN.
void relu(float* values, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) {
        const Vector x = load(values + i);
        store(values + i, x < 0.0f ? Vector{} : x);
    }
}

void exp(float* values, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) store(values + i, exp_of(load(values + i)));
}

void log(float* values, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) store(values + i, log_of(load(values + i)));
}

void tanh_slope(float* delta, const float* activation, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) {
        const Vector y = load(activation + i);
        store(delta + i, load(delta + i) * (1.0f - y * y));
    }
}

void relu_slope(float* delta, const float* activation, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; i += lanes) {
        store(delta + i, load(activation + i) > 0.0f ? load(delta + i) : Vector{});
    }
}

void row_sums(const float* values, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t columns, float* sums,
              bool accumulate) {
    for (ptrdiff_t i = 0; i < rows; ++i, values += row) {
        Vector total = load(values);
        for (ptrdiff_t j = lanes; j < columns; j += lanes) total += load(values + j);
        sums[i] = (accumulate ? sums[i] : 0.0f) + sum(total);
    }
}

float squared_norm(const float* values, ptrdiff_t count) {
    Vector sums[4] = {};
    ptrdiff_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
        for (int j = 0; j < 4; ++j) {
            const Vector x = load(values + i + j * lanes);
            sums[j] += x * x;
        }
    }
    float rest = 0;
    for (; i < count; ++i) rest += values[i] * values[i];
    return sum((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

void adam(float* __restrict parameter, float* __restrict mean, float* __restrict square,
          const float* __restrict gradient, ptrdiff_t count, const AdamStep& step) {
    const float towards = 1 - step.beta1, beta2 = step.beta2, rest = 1 - step.beta2;
    const float size = step.step_size, correction = step.root_correction, epsilon = step.epsilon;
    const float scale = step.gradient_scale;
    for (ptrdiff_t i = 0; i < count; ++i) {
        const float g = gradient[i] * scale;
        const float m = mean[i] + towards * (g - mean[i]);
        const float v = beta2 * square[i] + rest * g * g;
        mean[i] = m;
        square[i] = v;
        parameter[i] -= size * m / (__builtin_sqrtf(v) / correction + epsilon);
    }
}

void add(float* __restrict target, const float* __restrict source, ptrdiff_t count) {
    for (ptrdiff_t i = 0; i < count; ++i) target[i] += source[i];
}

void approach(float* __restrict target, const float* __restrict source, ptrdiff_t count,
              float share) {
    for (ptrdiff_t i = 0; i < count; ++i) target[i] += share * (source[i] - target[i]);
}

void choice_forward(float* logits, ptrdiff_t size, ptrdiff_t width, const int32_t* choices,
                    float* log_prob, float* entropy) {
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        float* column = logits + j;
        Vector largest = load(column);
        for (ptrdiff_t i = 1; i < size; ++i) {
            const Vector x = load(column + i * width);
            largest = x > largest ? x : largest;
        }
        Vector total = {};
        for (ptrdiff_t i = 0; i < size; ++i) total += exp_of(load(column + i * width) - largest);
        const Vector shift = largest + log_of(total);
        const Integers choice = load_integers(choices + j);
        Vector chosen = {}, disorder = {};
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Vector x = load(column + i * width) - shift;
            store(column + i * width, x);
            chosen = choice == static_cast<int32_t>(i) ? x : chosen;
            disorder -= exp_of(x) * x;
        }
        store(log_prob + j, load(log_prob + j) + chosen);
        store(entropy + j, disorder);
    }
}

// d log p(choice) / d logit i = [i is the choice] - p(i);  d entropy / d logit i = -p(i) (log p(i)
// + entropy).
void choice_backward(const float* log_probs, ptrdiff_t size, ptrdiff_t width,
                     const int32_t* choices, const float* log_prob_slope, const float* entropy,
                     float entropy_slope, float* delta) {
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        const Integers choice = load_integers(choices + j);
        const Vector slope = load(log_prob_slope + j), disorder = load(entropy + j);
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Vector x = load(log_probs + i * width + j), p = exp_of(x);
            const Vector chosen = choice == static_cast<int32_t>(i) ? all(1.0f) : Vector{};
            store(delta + i * width + j, slope * (chosen - p) - entropy_slope * p * (x + disorder));
        }
    }
}

// log p(switch) = switch * x - softplus(x);  entropy = softplus(x) - x * sigmoid(x).
void switch_forward(const float* logits, ptrdiff_t size, ptrdiff_t width, const float* switches,
                    float* log_prob, float* entropy) {
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        Vector likely = {}, disorder = {};
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Vector x = load(logits + i * width + j), tail = exp_of(-absolute(x));
            const Vector softplus = (x > 0.0f ? x : Vector{}) + log_of(1.0f + tail);
            likely += load(switches + i * width + j) * x - softplus;
            disorder += softplus - x * sigmoid_of(x, tail);
        }
        store(log_prob + j, likely);
        store(entropy + j, disorder);
    }
}

void switch_backward(const float* logits, ptrdiff_t size, ptrdiff_t width, const float* switches,
                     const float* log_prob_slope, float entropy_slope, float* delta) {
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        const Vector slope = load(log_prob_slope + j);
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Vector x = load(logits + i * width + j), tail = exp_of(-absolute(x));
            const Vector p = sigmoid_of(x, tail), rest = sigmoid_of(-x, tail);
            store(delta + i * width + j,
                  slope * (load(switches + i * width + j) - p) - entropy_slope * x * p * rest);
        }
    }
}

void normal_forward(const float* mean, ptrdiff_t width, const float* values,
                    float inverse_deviation, float constant, float* scaled, float* log_prob) {
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        const Vector z = (load(values + j) - load(mean + j)) * inverse_deviation;
        store(scaled + j, z);
        store(log_prob + j, load(log_prob + j) + (-0.5f * z * z - constant));
    }
}

// log N(raw) in terms of the noise, less log(1 - tanh(raw)^2) = 2 log 2 - 2 log(exp(raw) +
// exp(-raw)).
void squashed_forward(const float* outputs, ptrdiff_t size, ptrdiff_t width, const float* noise,
                      float* actions, float* log_prob) {
    const float constant =
        static_cast<float>(size) * (0.918938533204672742f + 1.386294361119890619f);
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        Vector likely = {}, squares = {};
        for (ptrdiff_t i = 0; i < size; ++i) {
            const Vector z = load(noise + i * width + j);
            const Vector log_std = limited_log_std(load(outputs + (size + i) * width + j));
            const Vector raw = load(outputs + i * width + j) + exp_of(log_std) * z;
            const Vector size_of_raw = absolute(raw);
            const Vector log_sum = size_of_raw + log_of(1.0f + exp_of(-2.0f * size_of_raw));
            likely += 2.0f * log_sum - log_std;
            squares += z * z;
            store(actions + i * width + j, tanh_of(raw));
        }
        store(log_prob + j, likely - 0.5f * squares - constant);
    }
}

void squashed_backward(const float* outputs, ptrdiff_t size, ptrdiff_t width, const float* noise,
                       const float* actions, const float* action_slope, float log_prob_slope,
                       float* delta) {
    for (ptrdiff_t i = 0; i < size; ++i) {
        for (ptrdiff_t j = 0; j < width; j += lanes) {
            const ptrdiff_t mean = i * width + j, deviation = (size + i) * width + j;
            const Vector a = load(actions + mean), given = load(outputs + deviation);
            const Vector log_std = limited_log_std(given);
            const Vector raw =
                load(action_slope + mean) * (1.0f - a * a) + 2.0f * log_prob_slope * a;
            const Vector own = raw * exp_of(log_std) * load(noise + mean) - log_prob_slope;
            store(delta + mean, raw);
            // Beyond its limits the log deviation has no effect.
            store(delta + deviation, given == log_std ? own : Vector{});
        }
    }
}

void clipped_surrogate(const float* log_prob, const float* old_log_prob, const float* advantages,
                       ptrdiff_t width, float clip_range, float scale, float* surrogate,
                       float* divergence, float* clipped, float* log_prob_slope) {
    const float low = 1 - clip_range, high = 1 + clip_range;
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        const Vector log_ratio = load(log_prob + j) - load(old_log_prob + j);
        const Vector ratio = exp_of(log_ratio), advantage = load(advantages + j);
        Vector within = ratio < low ? all(low) : ratio;
        within = within > high ? all(high) : within;
        const Vector free = ratio * advantage, bound = within * advantage;
        store(surrogate + j, free > bound ? bound : free);
        store(divergence + j, ratio - 1.0f - log_ratio);
        store(clipped + j, absolute(ratio - 1.0f) > clip_range ? all(1.0f) : Vector{});
        store(log_prob_slope + j, free > bound ? Vector{} : -scale * free);
    }
}

}  // namespace
}  // namespace ENVFLEET_KERNELS_SPACE

extern const Kernels ENVFLEET_KERNELS;
const Kernels ENVFLEET_KERNELS = {
    .name = ENVFLEET_KERNELS_NAME,
    .multiply = ENVFLEET_KERNELS_SPACE::multiply,
    .transpose = ENVFLEET_KERNELS_SPACE::transpose,
    .tanh = ENVFLEET_KERNELS_SPACE::tanh,
    .relu = ENVFLEET_KERNELS_SPACE::relu,
    .exp = ENVFLEET_KERNELS_SPACE::exp,
    .log = ENVFLEET_KERNELS_SPACE::log,
    .tanh_slope = ENVFLEET_KERNELS_SPACE::tanh_slope,
    .relu_slope = ENVFLEET_KERNELS_SPACE::relu_slope,
    .row_sums = ENVFLEET_KERNELS_SPACE::row_sums,
    .squared_norm = ENVFLEET_KERNELS_SPACE::squared_norm,
    .adam = ENVFLEET_KERNELS_SPACE::adam,
    .choice_forward = ENVFLEET_KERNELS_SPACE::choice_forward,
    .choice_backward = ENVFLEET_KERNELS_SPACE::choice_backward,
    .switch_forward = ENVFLEET_KERNELS_SPACE::switch_forward,
    .switch_backward = ENVFLEET_KERNELS_SPACE::switch_backward,
    .normal_forward = ENVFLEET_KERNELS_SPACE::normal_forward,
    .squashed_forward = ENVFLEET_KERNELS_SPACE::squashed_forward,
    .squashed_backward = ENVFLEET_KERNELS_SPACE::squashed_backward,
    .clipped_surrogate = ENVFLEET_KERNELS_SPACE::clipped_surrogate,
    .add = ENVFLEET_KERNELS_SPACE::add,
    .approach = ENVFLEET_KERNELS_SPACE::approach,
};

}  // namespace envfleet::learner

#undef ENVFLEET_KERNELS
#undef ENVFLEET_KERNELS_NAME
#undef ENVFLEET_KERNELS_SPACE
#undef ENVFLEET_LANES
