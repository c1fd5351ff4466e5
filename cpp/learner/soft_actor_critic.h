// The update of SAC: twin critics towards a target, the actor towards what they prefer, the
// temperature towards the entropy that is wanted, the target critics towards the critics.
//
// A batch is split in two halves, always in the same place. Two threads take one each; what comes
// out is the same to the last bit if one thread takes both.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
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
struct ReplayBatch {
    const Number *observations, *next_observations;
    const float *actions, *rewards, *discounts, *terminated;
    const float *next_noise, *noise;  // standard normal, [count][components]
    ptrdiff_t count;
};

struct SacSettings {
    StepSettings actor, critic, temperature;
    double tau, target_entropy, reward_scale;
};

struct SacMetrics {
    double policy_loss = 0, value_loss = 0, entropy = 0, temperature = 0, value = 0;
};

class SacUpdate {
  public:
    // `actor` gives a Gaussian's means and log deviations. `critic_adam` holds weight and bias of
    // every layer of the critics, both critics' in one, and `target_memory` the same of the
    // targets. `temperature` has one parameter, the temperature's logarithm.
    SacUpdate(const Perceptron& actor, Adam& actor_adam, TwinCritics critics, Adam& critic_adam,
              TwinCritics targets, std::vector<Memory> target_memory, Adam& temperature)
        : actor_adam_(actor_adam),
          critic_adam_(critic_adam),
          temperature_(temperature),
          features_(actor.inputs()),
          size_(actor.outputs() / 2),
          actor_(actor),
          critics_(std::move(critics)),
          targets_(std::move(targets)),
          target_memory_(std::move(target_memory)),
          halves_{Half(*this, 0), Half(*this, 1)} {}
    SacUpdate(const SacUpdate&) = delete;

    // One update; `metrics` are those of this one.
    template <class Number>
    std::optional<NotFinite> update(const ReplayBatch<Number>& batch, const SacSettings& settings,
                                    Pair& pair, SacMetrics& metrics) {
        const Scaling scaling(*this);
        const float temperature = std::exp(*temperature_.parameter(0).value);
        const float reward_scale = static_cast<float>(settings.reward_scale);
        metrics = {};
        metrics.temperature = static_cast<double>(temperature);
        pair.run([&](int which) {
            halves_[which].learn_values(batch, scaling, temperature, reward_scale);
        });
        const double count = static_cast<double>(batch.count);
        metrics.value_loss = (halves_[0].learnt.squares + halves_[1].learnt.squares) / (2 * count);
        metrics.value = (halves_[0].learnt.values + halves_[1].learnt.values) / (2 * count);
        add_gradients(critic_adam_, halves_[1].critic_gradients, kernels());
        if (auto failed =
                careful_step(critic_adam_, metrics.value_loss, settings.critic, "critic")) {
            return failed;
        }
        pair.run([&](int which) { halves_[which].learn_policy(batch, scaling, temperature); });
        const double log_prob = (halves_[0].log_probs + halves_[1].log_probs) / count;
        const double least = (halves_[0].least_values + halves_[1].least_values) / count;
        metrics.policy_loss = metrics.temperature * log_prob - least;
        metrics.entropy = -log_prob;
        add_gradients(actor_adam_, halves_[1].actor_gradients, kernels());
        if (auto failed = careful_step(actor_adam_, metrics.policy_loss, settings.actor, "actor")) {
            return failed;
        }
        if (auto failed = learn_temperature(log_prob, settings)) return failed;
        approach(target_memory_, critic_adam_, settings.tau, kernels());
        return std::nullopt;
    }

  private:
    // What observations are normalised by, as they are now.
    struct Scaling {
        explicit Scaling(const SacUpdate& all)
            : actor(all.actor_.normalization()),
              critic(all.critics_.statistics, all.features_),
              target(all.targets_.statistics, all.features_) {}
        Normalization actor, critic, target;
    };

    // One half of every batch: room for its passes, and its share of the sums.
    struct Half {
        Half(SacUpdate& all, int which)
            : all(all),
              which(which),
              actor_gradients(room_for(all.actor_adam_, which)),
              critic_gradients(room_for(all.critic_adam_, which)),
              actor(all.actor_, places(all.actor_adam_, actor_gradients)),
              critics(
                  trained_pair(all.critics_, all.critic_adam_, critic_gradients, all.kernels())),
              targets(judging_pair(all.targets_, all.kernels())),
              noise(all.size_ * block_rows),
              actions(all.size_ * block_rows),
              slopes(all.size_ * block_rows),
              log_prob(block_rows) {}

        // For each block of this half: from its first row and how many there are.
        template <class Task>
        void each_block(ptrdiff_t count, const Task& task) {
            if (!each_block_of_half(which, count, task)) {  // nothing to add
                clear(actor_gradients);
                clear(critic_gradients);
            }
        }

        template <class Number>
        void learn_values(const ReplayBatch<Number>& batch, const Scaling& scaling,
                          float temperature, float reward_scale) {
            learnt = {};
            const float scale = 1.0f / static_cast<float>(batch.count);
            const Outcomes outcomes{batch.rewards, batch.discounts, batch.terminated, reward_scale};
            each_block(batch.count, [&](ptrdiff_t row, ptrdiff_t count, bool first) {
                act(batch.next_observations, batch.next_noise, scaling.actor, row, count);
                const ptrdiff_t width = padded(count);
                judge(targets, batch.next_observations, scaling.target, row, count,
                      [&](ptrdiff_t j, ptrdiff_t i) { return actions[i * width + j]; });
                judge(critics, batch.observations, scaling.critic, row, count,
                      [&](ptrdiff_t j, ptrdiff_t i) {
                          return batch.actions[(row + j) * all.size_ + i];
                      });
                learn_outcomes(critics, targets, outcomes, row, count, scale, first, learnt,
                               [&](ptrdiff_t j) { return temperature * log_prob[j]; });
            });
        }

        template <class Number>
        void learn_policy(const ReplayBatch<Number>& batch, const Scaling& scaling,
                          float temperature) {
            log_probs = least_values = 0;
            const float scale = 1.0f / static_cast<float>(batch.count);
            each_block(batch.count, [&](ptrdiff_t row, ptrdiff_t count, bool first) {
                const ptrdiff_t width = padded(count);
                act(batch.observations, batch.noise, scaling.actor, row, count);
                judge(critics, batch.observations, scaling.critic, row, count,
                      [&](ptrdiff_t j, ptrdiff_t i) { return actions[i * width + j]; });
                for (ptrdiff_t j = 0; j < count; ++j) {
                    const float one = critics[0].outputs()[j], other = critics[1].outputs()[j];
                    least_values += static_cast<double>(one > other ? other : one);
                    log_probs += static_cast<double>(log_prob[j]);
                    // The smaller one's slope is 1, and half each where both are the same.
                    const float share = one == other ? 0.5f : one < other ? 1.0f : 0.0f;
                    critics[0].delta()[j] = -scale * share;
                    critics[1].delta()[j] = -scale * (1 - share);
                }
                for (Trainable& critic : critics) {
                    Perceptron::clear_padding(critic.delta(), 1, count);
                    critic.backward_to_inputs();
                }
                const ptrdiff_t from = all.features_ * width, numbers = all.size_ * width;
                std::copy_n(critics[0].delta() + from, numbers, slopes.data());
                all.kernels().add(slopes.data(), critics[1].delta() + from, numbers);
                all.kernels().squashed_backward(actor.outputs(), all.size_, width, noise.data(),
                                                actions.data(), slopes.data(), temperature * scale,
                                                actor.delta());
                Perceptron::clear_padding(actor.delta(), 2 * all.size_, count);
                actor.backward(first);
            });
        }

        // Actions and their log-probabilities for a block of observations.
        template <class Number>
        void act(const Number* observations, const float* drawn, const Normalization& normalize,
                 ptrdiff_t row, ptrdiff_t count) {
            const ptrdiff_t width = padded(count);
            for (ptrdiff_t j = 0; j < count; ++j) {
                normalize.apply(observations + (row + j) * all.features_,
                                actor.inputs() + j * actor.row(), 1);
            }
            all.kernels().transpose(drawn + row * all.size_, all.size_, count, all.size_,
                                    noise.data(), width);
            Perceptron::clear_padding(noise.data(), all.size_, count);
            actor.forward(count);
            all.kernels().squashed_forward(actor.outputs(), all.size_, width, noise.data(),
                                           actions.data(), log_prob.data());
        }

        template <class Number, class Action>
        void judge(std::array<Trainable, 2>& pair, const Number* observations,
                   const Normalization& normalize, ptrdiff_t row, ptrdiff_t count,
                   const Action& action) {
            envfleet::learner::judge(pair, observations, normalize, all.features_, all.size_, row,
                                     count, action);
        }

        // The second half has gradients of its own, to be added.
        static std::vector<Floats> room_for(const Adam& adam, int which) {
            return which == 1 ? room_like(adam) : std::vector<Floats>{};
        }

        SacUpdate& all;
        int which;
        std::vector<Floats> actor_gradients, critic_gradients;
        Trainable actor;
        std::array<Trainable, 2> critics, targets;
        Floats noise, actions, slopes, log_prob;
        CriticSums learnt;
        double log_probs = 0, least_values = 0;
    };

    const Kernels& kernels() const { return actor_.kernels(); }

    std::optional<NotFinite> learn_temperature(double log_prob, const SacSettings& settings) {
        const double error = log_prob + settings.target_entropy;
        const double loss = -static_cast<double>(*temperature_.parameter(0).value) * error;
        *temperature_.gradient(0) = static_cast<float>(-error);
        return careful_step(temperature_, loss, settings.temperature, "temperature");
    }

    Adam& actor_adam_;
    Adam& critic_adam_;
    Adam& temperature_;
    ptrdiff_t features_, size_;
    Perceptron actor_;
    TwinCritics critics_, targets_;
    std::vector<Memory> target_memory_;
    std::array<Half, 2> halves_;
};

}  // namespace envfleet::learner
