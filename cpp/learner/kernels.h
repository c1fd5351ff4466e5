// The loops in which a learner spends its time, once for every instruction set, picked at run time.
//
// Numbers of a batch lie batch by batch in memory, not sample by sample: an activation is a row, a
// sample a column, [features][batch]. So one vector holds the same number of several samples, any
// width of a layer is as good as another, and torch's own weights [outputs][inputs] are used where
// they are. Rows are padded to `padding` samples; what lies in the padding is finite and never
// counts.
//
// Everything is added up in an order that depends on the sizes alone: the same numbers give the
// same bits. What comes out for a sample does not depend on who else is in the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace envfleet::learner {

constexpr ptrdiff_t padding = 16;
constexpr ptrdiff_t slack = 64;

inline ptrdiff_t padded(ptrdiff_t count) { return (count + padding - 1) / padding * padding; }

// c[rows][columns] = bias of the row (or 0, or c itself) + a[rows][depth] * b[depth][columns].
// b may be read up to `slack` floats beyond its end; c is written to `columns` exactly.
struct Product {
    const float* a;
    ptrdiff_t a_row, a_column;  // steps from one row, one column of a to the next
    const float* b;
    ptrdiff_t b_row;
    float* c;
    ptrdiff_t c_row;
    ptrdiff_t rows, columns, depth;
    const float* bias = nullptr;
    bool accumulate = false;
};

// One step of Adam, as torch.optim.Adam(fused=True) takes it.
struct AdamStep {
    float beta1, beta2;
    float step_size;        // learning rate / (1 - beta1^t)
    float root_correction;  // sqrt(1 - beta2^t)
    float epsilon;
    float gradient_scale;  // gradients are multiplied by this first
};

struct Kernels {
    const char* name;

    void (*multiply)(const Product&);
    // to[columns][rows] = from[rows][columns] transposed.
    void (*transpose)(const float* from, ptrdiff_t from_row, ptrdiff_t rows, ptrdiff_t columns,
                      float* to, ptrdiff_t to_row);
    // In place on `count` numbers, a multiple of `padding`.
    void (*tanh)(float* values, ptrdiff_t count);
    void (*relu)(float* values, ptrdiff_t count);
    void (*exp)(float* values, ptrdiff_t count);
    void (*log)(float* values, ptrdiff_t count);
    // delta *= the slope of the activation function, given what it returned.
    void (*tanh_slope)(float* delta, const float* activation, ptrdiff_t count);
    void (*relu_slope)(float* delta, const float* activation, ptrdiff_t count);
    // sums[rows] (+)= the sum of each row's columns, which are a multiple of `padding`.
    void (*row_sums)(const float* values, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t columns,
                     float* sums, bool accumulate);
    float (*squared_norm)(const float* values, ptrdiff_t count);
    void (*adam)(float* parameter, float* mean, float* square, const float* gradient,
                 ptrdiff_t count, const AdamStep&);

    // Heads and losses, [..][width] each. Of one choice among `size`: logits become
    // log-probabilities, log_prob is added to, entropy is written.
    void (*choice_forward)(float* logits, ptrdiff_t size, ptrdiff_t width, const int32_t* choices,
                           float* log_prob, float* entropy);
    void (*choice_backward)(const float* log_probs, ptrdiff_t size, ptrdiff_t width,
                            const int32_t* choices, const float* log_prob_slope,
                            const float* entropy, float entropy_slope, float* delta);
    // Of `size` switches together: log_prob and entropy are written.
    void (*switch_forward)(const float* logits, ptrdiff_t size, ptrdiff_t width,
                           const float* switches, float* log_prob, float* entropy);
    void (*switch_backward)(const float* logits, ptrdiff_t size, ptrdiff_t width,
                            const float* switches, const float* log_prob_slope, float entropy_slope,
                            float* delta);
    // Of one Gaussian component: log_prob is added to; scaled = (value - mean) / deviation.
    void (*normal_forward)(const float* mean, ptrdiff_t width, const float* values,
                           float inverse_deviation, float constant, float* scaled, float* log_prob);
    // Of `size` Gaussians through tanh, means and log deviations [2 * size][width]: the actions
    // that standard normal noise leads to; log_prob is written.
    void (*squashed_forward)(const float* outputs, ptrdiff_t size, ptrdiff_t width,
                             const float* noise, float* actions, float* log_prob);
    void (*squashed_backward)(const float* outputs, ptrdiff_t size, ptrdiff_t width,
                              const float* noise, const float* actions, const float* action_slope,
                              float log_prob_slope, float* delta);
    // PPO's clipped surrogate: its terms, the estimates of the divergence and 1 where it was
    // clipped, and d (-scale * surrogate) / d log_prob.
    void (*clipped_surrogate)(const float* log_prob, const float* old_log_prob,
                              const float* advantages, ptrdiff_t width, float clip_range,
                              float scale, float* surrogate, float* divergence, float* clipped,
                              float* log_prob_slope);
    // target += source
    void (*add)(float* target, const float* source, ptrdiff_t count);
    // target += share * (source - target)
    void (*approach)(float* target, const float* source, ptrdiff_t count, float share);
};

// The best this processor has.
const Kernels& best_kernels();
// Those of one instruction set: "sse2", "avx2" or "avx512", "neon" on aarch64; "plain" elsewhere.
// std::invalid_argument where this processor does not have it.
const Kernels& kernels_named(const std::string& name);
// The names this processor has, the best one last.
std::vector<std::string> kernel_names();

}  // namespace envfleet::learner
