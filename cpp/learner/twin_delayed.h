// The update of TD3: twin critics towards a target, which the target policy's action with some
// noise gives; once in a while the actor towards what the first of them prefers, and the targets
// towards what they follow.
//
// A batch is split in two halves, always in the same place. Two threads take one each; what comes
// out is the same to the last bit if one thread takes both.
#pragma once

#include <algorithm>
#include <array>
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
struct DelayedBatch {
    const Number *observations, *next_observations;
    const float *actions, *rewards, *discounts, *terminated;
    const float* noise;  // added to the target policy's actions, [count][components]
    ptrdiff_t count;
};

struct DelayedSettings {
    StepSettings actor, critic;
    double tau, reward_scale;
};

struct DelayedMetrics {
    double policy_loss = 0, value_loss = 0, value = 0;
};

class DelayedUpdate {
  public:
    // `actor` gives the numbers that tanh turns into actions. `critic_adam` holds weight and bias
    // of every layer of the critics, both critics' in one; the memory is that of the targets.
    DelayedUpdate(const Perceptron& actor, Adam& actor_adam, TwinCritics critics, Adam& critic_adam,
                  const Perceptron& target_actor, std::vector<Memory> target_actor_memory,
                  TwinCritics targets, std::vector<Memory> target_memory)
        : actor_adam_(actor_adam),
          critic_adam_(critic_adam),
          features_(actor.inputs()),
          size_(actor.outputs()),
          actor_(actor),
          target_actor_(target_actor),
          critics_(std::move(critics)),
          targets_(std::move(targets)),
          target_actor_memory_(std::move(target_actor_memory)),
          target_memory_(std::move(target_memory)),
          halves_{Half(*this, 0), Half(*this, 1)} {}
    DelayedUpdate(const DelayedUpdate&) = delete;

    // One update, of the actor and the targets too if they are due; `metrics` are those of this
    // one.
    template <class Number>
    std::optional<NotFinite> update(const DelayedBatch<Number>& batch, bool due,
                                    const DelayedSettings& settings, Pair& pair,
                                    DelayedMetrics& metrics) {
        const Scaling scaling(*this);
        const float reward_scale = static_cast<float>(settings.reward_scale);
        metrics = {};
        pair.run([&](int which) { halves_[which].learn_values(batch, scaling, reward_scale); });
        const double count = static_cast<double>(batch.count);
        metrics.value_loss = (halves_[0].learnt.squares + halves_[1].learnt.squares) / (2 * count);
        metrics.value = (halves_[0].learnt.values + halves_[1].learnt.values) / (2 * count);
        add_gradients(critic_adam_, halves_[1].critic_gradients, kernels());
        if (auto failed =
                careful_step(critic_adam_, metrics.value_loss, settings.critic, "critic")) {
            return failed;
        }
        if (!due) return std::nullopt;
        pair.run([&](int which) { halves_[which].learn_policy(batch, scaling); });
        metrics.policy_loss = -(halves_[0].values + halves_[1].values) / count;
        add_gradients(actor_adam_, halves_[1].actor_gradients, kernels());
        if (auto failed = careful_step(actor_adam_, metrics.policy_loss, settings.actor, "actor")) {
            return failed;
        }
        approach(target_actor_memory_, actor_adam_, settings.tau, kernels());
        approach(target_memory_, critic_adam_, settings.tau, kernels());
        return std::nullopt;
    }

  private:
    // What observations are normalised by, as they are now.
    struct Scaling {
        explicit Scaling(const DelayedUpdate& all)
            : actor(all.actor_.normalization()),
              target_actor(all.target_actor_.normalization()),
              critic(all.critics_.statistics, all.features_),
              target(all.targets_.statistics, all.features_) {}
        Normalization actor, target_actor, critic, target;
    };

    // One half of every batch: room for its passes, and its share of the sums.
    struct Half {
        Half(DelayedUpdate& all, int which)
            : all(all),
              which(which),
              actor_gradients(room_for(all.actor_adam_, which)),
              critic_gradients(room_for(all.critic_adam_, which)),
              actor(all.actor_, places(all.actor_adam_, actor_gradients)),
              target_actor(all.target_actor_),
              critics(
                  trained_pair(all.critics_, all.critic_adam_, critic_gradients, all.kernels())),
              targets(judging_pair(all.targets_, all.kernels())),
              actions(all.size_ * block_rows) {}

        template <class Number>
        void learn_values(const DelayedBatch<Number>& batch, const Scaling& scaling,
                          float reward_scale) {
            learnt = {};
            const float scale = 1.0f / static_cast<float>(batch.count);
            const Outcomes outcomes{batch.rewards, batch.discounts, batch.terminated, reward_scale};
            const auto learn = [&](ptrdiff_t row, ptrdiff_t count, bool first) {
                act(target_actor, batch.next_observations, scaling.target_actor, row, count);
                const ptrdiff_t width = padded(count);
                judge(targets, batch.next_observations, scaling.target, all.features_, all.size_,
                      row, count, [&](ptrdiff_t j, ptrdiff_t i) {
                          const float noise = batch.noise[(row + j) * all.size_ + i];
                          return std::clamp(actions[i * width + j] + noise, -1.0f, 1.0f);
                      });
                judge(critics, batch.observations, scaling.critic, all.features_, all.size_, row,
                      count, [&](ptrdiff_t j, ptrdiff_t i) {
                          return batch.actions[(row + j) * all.size_ + i];
                      });
                learn_outcomes(critics, targets, outcomes, row, count, scale, first, learnt,
                               [](ptrdiff_t) { return 0.0f; });
            };
            if (!each_block_of_half(which, batch.count, learn)) clear(critic_gradients);
        }

        // The first critic alone says what an action is worth; `values` is the sum of that.
        template <class Number>
        void learn_policy(const DelayedBatch<Number>& batch, const Scaling& scaling) {
            values = 0;
            const float scale = 1.0f / static_cast<float>(batch.count);
            const auto learn = [&](ptrdiff_t row, ptrdiff_t count, bool first) {
                const ptrdiff_t width = padded(count), numbers = all.size_ * width;
                act(actor, batch.observations, scaling.actor, row, count);
                judge(
                    critics, batch.observations, scaling.critic, all.features_, all.size_, row,
                    count, [&](ptrdiff_t j, ptrdiff_t i) { return actions[i * width + j]; }, 1);
                Trainable& critic = critics[0];
                for (ptrdiff_t j = 0; j < count; ++j) {
                    values += static_cast<double>(critic.outputs()[j]);
                    critic.delta()[j] = -scale;
                }
                Perceptron::clear_padding(critic.delta(), 1, count);
                critic.backward_to_inputs();
                std::copy_n(critic.delta() + all.features_ * width, numbers, actor.delta());
                all.kernels().tanh_slope(actor.delta(), actions.data(), numbers);
                Perceptron::clear_padding(actor.delta(), all.size_, count);
                actor.backward(first);
            };
            if (!each_block_of_half(which, batch.count, learn)) clear(actor_gradients);
        }

        // What a policy does in a block of observations.
        template <class Number>
        void act(Trainable& policy, const Number* observations, const Normalization& normalize,
                 ptrdiff_t row, ptrdiff_t count) {
            const ptrdiff_t numbers = all.size_ * padded(count);
            show(policy, observations, normalize, all.features_, row, count);
            policy.forward(count);
            std::copy_n(policy.outputs(), numbers, actions.data());
            all.kernels().tanh(actions.data(), numbers);
        }

        // The second half has gradients of its own, to be added.
        static std::vector<Floats> room_for(const Adam& adam, int which) {
            return which == 1 ? room_like(adam) : std::vector<Floats>{};
        }

        DelayedUpdate& all;
        int which;
        std::vector<Floats> actor_gradients, critic_gradients;
        Trainable actor, target_actor;
        std::array<Trainable, 2> critics, targets;
        Floats actions;
        CriticSums learnt;
        double values = 0;  // of what the actor does
    };

    const Kernels& kernels() const { return actor_.kernels(); }

    Adam& actor_adam_;
    Adam& critic_adam_;
    ptrdiff_t features_, size_;
    Perceptron actor_, target_actor_;
    TwinCritics critics_, targets_;
    std::vector<Memory> target_actor_memory_, target_memory_;
    std::array<Half, 2> halves_;
};

}  // namespace envfleet::learner
