// The update of DQN: the value of what was done towards the rewards and the target's value of the
// best choice afterwards; the target towards the network.
//
// A batch is split in two halves, always in the same place. Two threads take one each; what comes
// out is the same to the last bit if one thread takes both.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "learner/memory.h"
#include "learner/pair.h"
#include "learner/steps.h"
#include "learner/trainable.h"
#include "learner/twin_critics.h"

namespace envfleet::learner {

// A batch of transitions, [count][..] each.
template <class Number>
struct ChoiceBatch {
    const Number *observations, *next_observations;
    const int32_t* choices;  // counted from 0
    const float *rewards, *discounts, *terminated;
    const float* weights;  // of their errors; nullptr: all count alike
    float* errors;         // receives how much each value is above its target
    ptrdiff_t count;
};

struct ChoiceSettings {
    StepSettings step;
    double tau, reward_scale;
    bool is_double;  // the network itself, not its target, says which choice is best afterwards
};

struct ChoiceMetrics {
    double loss = 0, value = 0;
};

class ChoiceUpdate {
  public:
    // `network` gives the value of every choice.
    ChoiceUpdate(const Perceptron& network, Adam& adam, const Perceptron& target,
                 std::vector<Memory> target_memory)
        : adam_(adam),
          features_(network.inputs()),
          choices_(network.outputs()),
          network_(network),
          target_(target),
          target_memory_(std::move(target_memory)),
          halves_{Half(*this, 0), Half(*this, 1)} {}
    ChoiceUpdate(const ChoiceUpdate&) = delete;

    // One update; `metrics` are those of this one.
    template <class Number>
    std::optional<NotFinite> update(const ChoiceBatch<Number>& batch,
                                    const ChoiceSettings& settings, Pair& pair,
                                    ChoiceMetrics& metrics) {
        const Normalization own = network_.normalization(), targets = target_.normalization();
        pair.run([&](int which) { halves_[which].learn(batch, own, targets, settings); });
        const double count = static_cast<double>(batch.count);
        metrics.loss = (halves_[0].losses + halves_[1].losses) / count;
        metrics.value = (halves_[0].values + halves_[1].values) / count;
        add_gradients(adam_, halves_[1].gradients, network_.kernels());
        if (auto failed = careful_step(adam_, metrics.loss, settings.step, "actor")) return failed;
        approach(target_memory_, adam_, settings.tau, network_.kernels());
        return std::nullopt;
    }

  private:
    // One half of every batch: room for its passes, and its share of the sums.
    struct Half {
        Half(ChoiceUpdate& all, int which)
            : all(all),
              which(which),
              gradients(which == 1 ? room_like(all.adam_) : std::vector<Floats>{}),
              network(all.network_, places(all.adam_, gradients)),
              target(all.target_),
              following(block_rows) {}

        template <class Number>
        void learn(const ChoiceBatch<Number>& batch, const Normalization& own,
                   const Normalization& targets, const ChoiceSettings& settings) {
            losses = values = 0;
            const float scale = 1.0f / static_cast<float>(batch.count);
            const float reward_scale = static_cast<float>(settings.reward_scale);
            const auto learn = [&](ptrdiff_t row, ptrdiff_t count, bool first) {
                look_ahead(batch.next_observations, own, targets, row, count, settings.is_double);
                show(network, batch.observations, own, all.features_, row, count);
                network.forward(count);
                const ptrdiff_t width = padded(count);
                std::fill_n(network.delta(), all.choices_ * width, 0.0f);
                for (ptrdiff_t j = 0; j < count; ++j) {
                    const ptrdiff_t at = row + j;
                    const float goes_on = batch.discounts[at] * (1 - batch.terminated[at]);
                    const float target = reward_scale * batch.rewards[at] + goes_on * following[j];
                    const ptrdiff_t place = batch.choices[at] * width + j;
                    const float value = network.outputs()[place], error = value - target;
                    const float size = std::abs(error);
                    const float weight = batch.weights == nullptr ? 1.0f : batch.weights[at];
                    // Huber: squared up to 1, then its slope stays as it is.
                    const float loss = size < 1.0f ? 0.5f * error * error : size - 0.5f;
                    losses += static_cast<double>(weight) * static_cast<double>(loss);
                    values += static_cast<double>(value);
                    batch.errors[at] = error;
                    network.delta()[place] = scale * weight * std::clamp(error, -1.0f, 1.0f);
                }
                network.backward(first);
            };
            if (!each_block_of_half(which, batch.count, learn)) clear(gradients);
        }

        // The target's value of the best choice in each of a block of observations.
        template <class Number>
        void look_ahead(const Number* observations, const Normalization& own,
                        const Normalization& targets, ptrdiff_t row, ptrdiff_t count,
                        bool is_double) {
            show(target, observations, targets, all.features_, row, count);
            target.forward(count);
            if (is_double) {
                show(network, observations, own, all.features_, row, count);
                network.forward(count);
            }
            const float* judged = is_double ? network.outputs() : target.outputs();
            const ptrdiff_t width = padded(count);
            for (ptrdiff_t j = 0; j < count; ++j) {
                ptrdiff_t best = 0;
                for (ptrdiff_t i = 1; i < all.choices_; ++i) {
                    if (judged[i * width + j] > judged[best * width + j]) best = i;
                }
                following[j] = target.outputs()[best * width + j];
            }
        }

        ChoiceUpdate& all;
        int which;
        std::vector<Floats> gradients;
        Trainable network, target;
        Floats following;
        double losses = 0, values = 0;
    };

    Adam& adam_;
    ptrdiff_t features_, choices_;
    Perceptron network_, target_;
    std::vector<Memory> target_memory_;
    std::array<Half, 2> halves_;
};

}  // namespace envfleet::learner
