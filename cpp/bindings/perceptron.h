// A perceptron on torch's weights, as Python holds it: the arrays are views of the tensors' memory,
// kept alive for as long as this is.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "learner/perceptron.h"

namespace envfleet {

namespace nb = nanobind;

using FloatArray = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<double, nb::c_contig, nb::device::cpu>;

inline learner::Activation activation_named(const std::string& name) {
    if (name == "tanh") return learner::Activation::tanh;
    if (name == "relu") return learner::Activation::relu;
    throw std::invalid_argument("The activation must be \"tanh\" or \"relu\", got \"" + name +
                                "\".");
}

// Weight [outputs, inputs] and bias [outputs] of each layer, as torch.nn.Linear has them.
using LayerArrays = std::vector<std::pair<Matrix, FloatArray>>;
// count, mean, m2 and clip of a Normalizer.
using StatisticsArrays = std::tuple<Doubles, Doubles, Doubles, double>;

inline std::vector<learner::Layer> layers_of(const LayerArrays& arrays) {
    std::vector<learner::Layer> layers;
    for (const auto& [weight, bias] : arrays) {
        if (bias.size() != weight.shape(0)) {
            throw std::invalid_argument("A layer's bias must have a number for each output.");
        }
        layers.push_back({weight.data(), bias.data(), static_cast<ptrdiff_t>(weight.shape(1)),
                          static_cast<ptrdiff_t>(weight.shape(0))});
    }
    return layers;
}

inline std::optional<learner::Statistics> statistics_of(
    const std::optional<StatisticsArrays>& arrays, size_t features) {
    if (!arrays) return std::nullopt;
    const auto& [count, mean, m2, clip] = *arrays;
    if (count.size() != 1 || mean.size() != features || m2.size() != features) {
        throw std::invalid_argument("The statistics do not fit the perceptron's inputs.");
    }
    return learner::Statistics{count.data(), mean.data(), m2.data(), clip};
}

class TorchPerceptron {
  public:
    TorchPerceptron(LayerArrays layers, const std::string& activation,
                    std::optional<StatisticsArrays> statistics, const learner::Kernels& kernels)
        : layers_(std::move(layers)),
          statistics_(std::move(statistics)),
          network_(layers_of(layers_), activation_named(activation),
                   statistics_of(statistics_, layers_.empty() ? 0 : layers_[0].first.shape(1)),
                   kernels),
          room_(network_.activations()) {}
    TorchPerceptron(const TorchPerceptron&) = delete;

    const learner::Perceptron& network() const { return network_; }
    // One thread at a time works in it: whoever holds the GIL.
    learner::Activations& room() { return room_; }

  private:
    LayerArrays layers_;
    std::optional<StatisticsArrays> statistics_;
    learner::Perceptron network_;
    learner::Activations room_;
};

}  // namespace envfleet
