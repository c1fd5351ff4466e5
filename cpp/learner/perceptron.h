// A perceptron on weights that somebody else owns, such as torch: the layers' weights and biases
// are read where they are, so they are always current.
//
//     observations ──▶ normalised, clipped ──▶ layer ──▶ tanh ──▶ ... ──▶ last layer ──▶ outputs
//
// A batch is worked through in blocks of `block_rows` samples, whose activations stay in the cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "learner/kernels.h"
#include "learner/memory.h"

namespace envfleet::learner {

constexpr ptrdiff_t block_rows = 64;

enum class Activation { tanh, relu };

// A fully connected layer: weight[outputs][inputs], or [inputs][outputs] if it is turned, and
// bias[outputs].
struct Layer {
    const float* weight;
    const float* bias;
    ptrdiff_t inputs, outputs;
    bool turned = false;

    ptrdiff_t output_step() const { return turned ? 1 : inputs; }
    ptrdiff_t input_step() const { return turned ? outputs : 1; }
};

// Running statistics of observations, as envfleet.train's Normalizer keeps them.
struct Statistics {
    const double* count;  // one number
    const double* mean;   // [features]
    const double* m2;     // [features], the sum of squared deviations
    double clip;
};

// What a fleet's observations are shifted and scaled by. Taken once for a whole batch, for the
// statistics may move between two.
class Normalization {
  public:
    Normalization(const std::optional<Statistics>& statistics, ptrdiff_t features)
        : features_(features) {
        if (!statistics) return;
        clip_ = statistics->clip;
        mean_.assign(statistics->mean, statistics->mean + features);
        const double count = *statistics->count;
        for (ptrdiff_t i = 0; i < features; ++i) {
            const double variance = count > 0 ? statistics->m2[i] / std::max(count, 1.0) : 1.0;
            scale_.push_back(1.0 / std::sqrt(variance + 1e-8));
        }
    }

    // One row of features, `step` apart in `to`.
    template <class Number>
    void apply(const Number* from, float* to, ptrdiff_t step) const {
        if (mean_.empty()) {
            for (ptrdiff_t i = 0; i < features_; ++i) to[i * step] = static_cast<float>(from[i]);
            return;
        }
        for (ptrdiff_t i = 0; i < features_; ++i) {
            double value = (static_cast<double>(from[i]) - mean_[i]) * scale_[i];
            // NaN stays NaN: no comparison with it holds.
            value = value < -clip_ ? -clip_ : value;
            value = value > clip_ ? clip_ : value;
            to[i * step] = static_cast<float>(value);
        }
    }

  private:
    ptrdiff_t features_;
    double clip_ = 0;
    std::vector<double> mean_, scale_;
};

// The activations of one block, [features][padded(rows)] a layer: the inputs first, the outputs
// last.
class Activations {
  public:
    Activations() = default;
    Activations(Activations&&) = default;
    Activations& operator=(Activations&&) = default;

    float* layer(size_t index) { return layers_[index].data(); }
    const float* layer(size_t index) const { return layers_[index].data(); }
    float* outputs() { return layers_.back().data(); }

  private:
    friend class Perceptron;
    std::vector<Floats> layers_;
};

class Perceptron {
  public:
    // std::invalid_argument if the layers do not fit each other.
    Perceptron(std::vector<Layer> layers, Activation activation,
               std::optional<Statistics> statistics = std::nullopt,
               const Kernels& kernels = best_kernels())
        : layers_(std::move(layers)),
          activation_(activation),
          statistics_(statistics),
          kernels_(&kernels) {
        if (layers_.empty()) throw std::invalid_argument("A perceptron needs a layer.");
        for (size_t i = 1; i < layers_.size(); ++i) {
            if (layers_[i].inputs != layers_[i - 1].outputs) {
                throw std::invalid_argument("The layers of a perceptron do not fit each other.");
            }
        }
    }

    ptrdiff_t inputs() const { return layers_.front().inputs; }
    ptrdiff_t outputs() const { return layers_.back().outputs; }
    const std::vector<Layer>& layers() const { return layers_; }
    Activation activation() const { return activation_; }
    const Kernels& kernels() const { return *kernels_; }
    Normalization normalization() const { return Normalization(statistics_, inputs()); }

    // Room for blocks of this perceptron. One thread at a time works in it.
    Activations activations() const {
        Activations room;
        room.layers_.emplace_back(inputs() * block_rows);
        for (const Layer& layer : layers_) room.layers_.emplace_back(layer.outputs * block_rows);
        return room;
    }

    // outputs[rows][outputs()] of observations[rows][inputs()]; any number of rows.
    template <class Number>
    void forward(const Number* observations, ptrdiff_t rows, float* outputs,
                 Activations& room) const {
        const Normalization normalize = normalization();
        for (ptrdiff_t row = 0; row < rows; row += block_rows) {
            const ptrdiff_t count = std::min(block_rows, rows - row), width = padded(count);
            float* first = room.layer(0);
            for (ptrdiff_t i = 0; i < count; ++i) {
                normalize.apply(observations + (row + i) * inputs(), first + i, width);
            }
            clear_padding(first, inputs(), count);
            forward_block(room, width);
            kernels_->transpose(room.outputs(), width, this->outputs(), count,
                                outputs + row * this->outputs(), this->outputs());
        }
    }

    // The layers, from room.layer(0), which is filled, to room.outputs(): [..][width] each.
    void forward_block(Activations& room, ptrdiff_t width) const {
        for (size_t i = 0; i < layers_.size(); ++i) {
            const Layer& layer = layers_[i];
            float* to = room.layer(i + 1);
            kernels_->multiply({.a = layer.weight,
                                .a_row = layer.output_step(),
                                .a_column = layer.input_step(),
                                .b = room.layer(i),
                                .b_row = width,
                                .c = to,
                                .c_row = width,
                                .rows = layer.outputs,
                                .columns = width,
                                .depth = layer.inputs,
                                .bias = layer.bias});
            if (i + 1 == layers_.size()) return;
            (activation_ == Activation::tanh ? kernels_->tanh : kernels_->relu)(
                to, layer.outputs * width);
        }
    }

    // Zeros in the columns from `count` on of values[rows][padded(count)].
    static void clear_padding(float* values, ptrdiff_t rows, ptrdiff_t count) {
        const ptrdiff_t width = padded(count);
        for (ptrdiff_t i = 0; i < rows; ++i) {
            for (ptrdiff_t j = count; j < width; ++j) values[i * width + j] = 0;
        }
    }

  private:
    std::vector<Layer> layers_;
    Activation activation_;
    std::optional<Statistics> statistics_;
    const Kernels* kernels_;
};

}  // namespace envfleet::learner
