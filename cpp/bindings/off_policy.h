// What the updates of SAC, TD3 and DQN take from Python: pairs of critics, and networks that follow
// others.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/on_policy.h"
#include "bindings/perceptron.h"
#include "learner/twin_critics.h"

namespace envfleet {

template <class Number>
using Observations = nb::ndarray<const Number, nb::c_contig, nb::device::cpu>;
using Column = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Layers of pairs: weight [2, inputs, outputs] and bias [2, 1, outputs] in turn.
inline std::vector<learner::Layer> pair_layers_of(const std::vector<FloatArray>& arrays) {
    std::vector<learner::Layer> layers;
    for (size_t i = 0; i + 1 < arrays.size(); i += 2) {
        const FloatArray &weight = arrays[i], &bias = arrays[i + 1];
        if (weight.ndim() != 3 || weight.shape(0) != 2 || bias.size() != 2 * weight.shape(2)) {
            throw std::invalid_argument("Expected the weight and the bias of each pair of layers.");
        }
        layers.push_back({.weight = weight.data(),
                          .bias = bias.data(),
                          .inputs = static_cast<ptrdiff_t>(weight.shape(1)),
                          .outputs = static_cast<ptrdiff_t>(weight.shape(2)),
                          .turned = true});
    }
    if (layers.empty() || layers.back().outputs != 1) {
        throw std::invalid_argument("A critic must have one output.");
    }
    return layers;
}

inline std::vector<FloatArray> values_of(const std::vector<ParameterArrays>& arrays) {
    std::vector<FloatArray> values;
    for (const ParameterArrays& each : arrays) values.push_back(std::get<0>(each));
    return values;
}

// Critics of so many features and components of an action.
inline learner::TwinCritics twin_critics(const std::vector<FloatArray>& arrays,
                                         const std::string& activation,
                                         const std::optional<StatisticsArrays>& statistics,
                                         ptrdiff_t features, ptrdiff_t size) {
    std::vector<learner::Layer> layers = pair_layers_of(arrays);
    if (layers[0].inputs != features + size) {
        throw std::invalid_argument("The critics do not fit the actor.");
    }
    return {std::move(layers), activation_named(activation),
            statistics_of(statistics, static_cast<size_t>(features))};
}

// The memory of a network that follows the one an optimiser trains.
inline std::vector<learner::Memory> memory_of(const std::vector<FloatArray>& following,
                                              const learner::Adam& adam) {
    std::vector<learner::Memory> found;
    for (size_t i = 0; i < following.size(); ++i) {
        const ptrdiff_t count = static_cast<ptrdiff_t>(following[i].size());
        if (i >= adam.size() || adam.parameter(i).count != count) {
            throw std::invalid_argument("The targets do not fit what they follow.");
        }
        found.push_back({following[i].data(), count});
    }
    return found;
}

// A perceptron that follows another: the same layers, with weights [outputs, inputs] and biases of
// its own in turn.
inline learner::Perceptron following_perceptron(const std::vector<FloatArray>& arrays,
                                                const learner::Perceptron& followed,
                                                const std::optional<StatisticsArrays>& statistics) {
    std::vector<learner::Layer> layers = followed.layers();
    if (arrays.size() != 2 * layers.size()) {
        throw std::invalid_argument("The targets do not fit what they follow.");
    }
    for (size_t i = 0; i < layers.size(); ++i) {
        const size_t weights = static_cast<size_t>(layers[i].inputs * layers[i].outputs);
        if (arrays[2 * i].size() != weights ||
            arrays[2 * i + 1].size() != static_cast<size_t>(layers[i].outputs)) {
            throw std::invalid_argument("The targets do not fit what they follow.");
        }
        layers[i].weight = arrays[2 * i].data();
        layers[i].bias = arrays[2 * i + 1].data();
    }
    return learner::Perceptron(std::move(layers), followed.activation(),
                               statistics_of(statistics, static_cast<size_t>(followed.inputs())),
                               followed.kernels());
}

}  // namespace envfleet
