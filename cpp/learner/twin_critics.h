// What the updates of SAC, TD3 and DQN share: pairs of critics, networks that follow others slowly,
// and batches in two halves, always split in the same place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "learner/memory.h"
#include "learner/trainable.h"

namespace envfleet::learner {

// The two critics of a pair: layers of weight[2][inputs][outputs] and bias[2][outputs].
struct TwinCritics {
    std::vector<Layer> layers;  // of the first; the second's lie right behind
    Activation activation;
    std::optional<Statistics> statistics;

    Perceptron critic(int which, const Kernels& kernels) const {
        std::vector<Layer> own = layers;
        for (Layer& layer : own) {
            layer.weight += which * layer.inputs * layer.outputs;
            layer.bias += which * layer.outputs;
        }
        return Perceptron(own, activation, std::nullopt, kernels);
    }
};

// Some of torch's memory.
struct Memory {
    float* data;
    ptrdiff_t count;
};

// A share of the way from a slow copy's memory to the parameters of an optimiser, one by one.
inline void approach(const std::vector<Memory>& copy, const Adam& adam, double share,
                     const Kernels& kernels) {
    for (size_t i = 0; i < copy.size(); ++i) {
        kernels.approach(copy[i].data, adam.parameter(i).value, copy[i].count,
                         static_cast<float>(share));
    }
}

inline void clear(std::vector<Floats>& gradients) {
    for (Floats& each : gradients) std::fill_n(each.data(), each.size(), 0.0f);
}

// Where the gradients of the first `parts`th of an optimiser's parameters go, or of part `number`:
// to the optimiser's own places, or to others of one's own.
inline std::vector<LayerGradient> places(Adam& adam, std::vector<Floats>& own, int number = 0,
                                         int parts = 1) {
    std::vector<LayerGradient> found;
    const auto place = [&](size_t i) {
        float* all = own.empty() ? adam.gradient(i) : own[i].data();
        return all + number * adam.parameter(i).count / parts;
    };
    for (size_t i = 0; i + 1 < adam.size(); i += 2) found.push_back({place(i), place(i + 1)});
    return found;
}

// A pair that learns: its gradients go to the optimiser's places, or to others of one's own.
inline std::array<Trainable, 2> trained_pair(const TwinCritics& pair, Adam& adam,
                                             std::vector<Floats>& own, const Kernels& kernels) {
    return {Trainable(pair.critic(0, kernels), places(adam, own, 0, 2)),
            Trainable(pair.critic(1, kernels), places(adam, own, 1, 2))};
}

// A pair that is asked only.
inline std::array<Trainable, 2> judging_pair(const TwinCritics& pair, const Kernels& kernels) {
    return {Trainable(pair.critic(0, kernels)), Trainable(pair.critic(1, kernels))};
}

// task(first row, rows, whether it is the first) for each block of one half; false if there is
// none.
template <class Task>
bool each_block_of_half(int which, ptrdiff_t count, const Task& task) {
    const ptrdiff_t blocks = (count + block_rows - 1) / block_rows;
    const ptrdiff_t middle = std::min(count, (blocks + 1) / 2 * block_rows);
    const ptrdiff_t begin = which == 0 ? 0 : middle, end = which == 0 ? middle : count;
    for (ptrdiff_t row = begin; row < end; row += block_rows) {
        task(row, std::min(block_rows, end - row), row == begin);
    }
    return begin < end;
}

// Observations, from one row on, as a network takes them.
template <class Number>
void show(Trainable& network, const Number* observations, const Normalization& normalize,
          ptrdiff_t features, ptrdiff_t row, ptrdiff_t count) {
    for (ptrdiff_t j = 0; j < count; ++j) {
        normalize.apply(observations + (row + j) * features, network.inputs() + j * network.row(),
                        1);
    }
}

// What critics say of a block of observations and actions; action(sample, component).
template <class Number, size_t critics, class Action>
void judge(std::array<Trainable, critics>& pair, const Number* observations,
           const Normalization& normalize, ptrdiff_t features, ptrdiff_t size, ptrdiff_t row,
           ptrdiff_t count, const Action& action, size_t asked = critics) {
    float* inputs = pair[0].inputs();
    const ptrdiff_t step = pair[0].row();
    show(pair[0], observations, normalize, features, row, count);
    for (ptrdiff_t j = 0; j < count; ++j) {
        for (ptrdiff_t i = 0; i < size; ++i) inputs[j * step + features + i] = action(j, i);
    }
    for (size_t i = 1; i < asked; ++i) std::copy_n(inputs, count * step, pair[i].inputs());
    for (size_t i = 0; i < asked; ++i) pair[i].forward(count);
}

// What came after the steps of a batch, and what rewards are multiplied by.
struct Outcomes {
    const float *rewards, *discounts, *terminated;
    float reward_scale;
};

// Sums over a pair of critics: their squared errors, and what they said.
struct CriticSums {
    double squares = 0, values = 0;
};

// A pair that was asked about a block learns from the outcomes and the lower of what the targets
// said of the next states, less what being there costs; cost(sample). `scale` is that of the loss.
template <class Cost>
void learn_outcomes(std::array<Trainable, 2>& critics, std::array<Trainable, 2>& targets,
                    const Outcomes& outcomes, ptrdiff_t row, ptrdiff_t count, float scale,
                    bool first, CriticSums& sums, const Cost& cost) {
    const float *one = targets[0].outputs(), *other = targets[1].outputs();
    for (ptrdiff_t j = 0; j < count; ++j) {
        const float least = one[j] > other[j] ? other[j] : one[j];
        const float goes_on = outcomes.discounts[row + j] * (1 - outcomes.terminated[row + j]);
        const float target =
            outcomes.reward_scale * outcomes.rewards[row + j] + goes_on * (least - cost(j));
        for (Trainable& critic : critics) {
            const float error = critic.outputs()[j] - target;
            sums.squares += static_cast<double>(error) * static_cast<double>(error);
            sums.values += static_cast<double>(critic.outputs()[j]);
            critic.delta()[j] = scale * error;
        }
    }
    for (Trainable& critic : critics) {
        Perceptron::clear_padding(critic.delta(), 1, count);
        critic.backward(first);
    }
}

}  // namespace envfleet::learner
