// The updates of A2C and PPO: an actor and a critic of their own learn from one batch of
// transitions.
//
// The two never look at each other's weights, so PPO's may learn side by side, in two threads.
// Large batches are split in two halves, always in the same place, of which A2C's two threads take
// one each. What comes out is the same to the last bit if one thread does it all.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "learner/heads.h"
#include "learner/memory.h"
#include "learner/pair.h"
#include "learner/steps.h"
#include "learner/trainable.h"

namespace envfleet::learner {

// The transitions to learn from, sample by sample.
struct Transitions {
    ptrdiff_t count = 0;
    Floats actor_inputs, critic_inputs;  // normalised, [count][Trainable::row()]
    std::vector<int32_t> choices;        // [count][components], or
    Floats numbers;                      // [count][components]
    Floats advantages, returns;
};

// Which rows of the transitions: the given ones, or all if there are none.
struct Rows {
    const int64_t* order;
    ptrdiff_t begin, count;

    ptrdiff_t operator[](ptrdiff_t i) const { return order ? order[begin + i] : begin + i; }
    Rows part(ptrdiff_t from, ptrdiff_t size) const { return {order, begin + from, size}; }
};

// The rows in as many parts as are needed for `largest` a part, all of one size within a row.
inline std::vector<Rows> split(const Rows& rows, ptrdiff_t largest) {
    const ptrdiff_t parts = (rows.count + largest - 1) / largest;
    const ptrdiff_t size = rows.count / parts, longer = rows.count % parts;
    std::vector<Rows> result;
    for (ptrdiff_t i = 0, from = 0; i < parts; ++i) {
        const ptrdiff_t own = size + (i < longer);
        result.push_back(rows.part(from, own));
        from += own;
    }
    return result;
}

inline void gather(const Floats& from, ptrdiff_t row, const Rows& rows, float* to) {
    for (ptrdiff_t i = 0; i < rows.count; ++i) {
        std::copy_n(from.data() + rows[i] * row, row, to + i * row);
    }
}

// The halves of a batch; the second one is empty unless the batch is large.
inline std::array<Rows, 2> halves(const Rows& rows) {
    const ptrdiff_t blocks = (rows.count + block_rows - 1) / block_rows;
    const ptrdiff_t first = blocks < 4 ? rows.count : (blocks + 1) / 2 * block_rows;
    return {rows.part(0, first), rows.part(first, rows.count - first)};
}

class CriticUpdate {
  public:
    CriticUpdate(Trainable& network, Adam& adam)
        : first_(network),
          adam_(adam),
          room_(room_like(adam)),
          second_(network.network(), gradients_in(room_, network.network().layers().size())) {}

    // Half the mean squared error to the returns; its gradient is left with the optimiser.
    double loss(const Transitions& data, const Rows& rows, Pair& pair) {
        const std::array<Rows, 2> parts = halves(rows);
        const float scale = 1.0f / static_cast<float>(rows.count);
        if (parts[1].count == 0) {
            return 0.5 * part(first_, data, rows, scale) / static_cast<double>(rows.count);
        }
        std::array<double, 2> sums{};
        pair.run([&](int which) {
            sums[which] = part(which == 0 ? first_ : second_, data, parts[which], scale);
        });
        add_gradients(adam_, room_, first_.kernels());
        return 0.5 * (sums[0] + sums[1]) / static_cast<double>(rows.count);
    }

  private:
    // The sum of squared errors.
    static double part(Trainable& network, const Transitions& data, const Rows& rows, float scale) {
        double total = 0;
        for (ptrdiff_t from = 0; from < rows.count; from += block_rows) {
            const Rows block = rows.part(from, std::min(block_rows, rows.count - from));
            gather(data.critic_inputs, network.row(), block, network.inputs());
            network.forward(block.count);
            const float* values = network.outputs();
            float* delta = network.delta();
            for (ptrdiff_t j = 0; j < block.count; ++j) {
                const float error = values[j] - data.returns[block[j]];
                total += static_cast<double>(error) * static_cast<double>(error);
                delta[j] = scale * error;
            }
            Perceptron::clear_padding(delta, 1, block.count);
            network.backward(from == 0);
        }
        return total;
    }

    Trainable& first_;
    Adam& adam_;
    std::vector<Floats> room_;
    Trainable second_;
};

// What an update of the actor tells; means over a minibatch, or sums of them.
struct PolicyMetrics {
    double loss = 0, entropy = 0, divergence = 0, clipped = 0;

    void operator+=(const PolicyMetrics& other) {
        loss += other.loss;
        entropy += other.entropy;
        divergence += other.divergence;
        clipped += other.clipped;
    }
    void operator/=(double count) {
        loss /= count;
        entropy /= count;
        divergence /= count;
        clipped /= count;
    }
};

struct PolicySettings {
    double entropy_coef;
    bool normalize_advantages;
    double clip_range = 0;  // PPO's; 0: the plain policy gradient, A2C's
};

// The policy's loss over some rows, and its gradient.
class ActorPass {
  public:
    ActorPass(Trainable& network, Head& head) : network_(network), head_(head) {
        for (Floats* each : {&log_prob_, &entropy_, &old_, &advantages_, &surrogate_, &divergence_,
                             &clipped_, &slope_}) {
            *each = Floats(block_rows);
        }
        numbers_ = Floats(head.components() * block_rows);
        choices_.resize(static_cast<size_t>(head.components() * block_rows));
    }

    // The log-probabilities of actions, as the policy is now.
    void log_probs(const Transitions& data, const Rows& rows, float* result) {
        for (ptrdiff_t from = 0; from < rows.count; from += block_rows) {
            const Rows block = rows.part(from, std::min(block_rows, rows.count - from));
            forward(data, block);
            std::copy_n(log_prob_.data(), block.count, result + block.begin);
        }
    }

    // The sums over the rows, of a batch of `total` with advantages from `shift` on times `factor`;
    // `loss` is that of the surrogate. `old_log_probs` of all transitions are PPO's.
    PolicyMetrics sums(const Transitions& data, const float* old_log_probs, const Rows& rows,
                       const PolicySettings& settings, ptrdiff_t total, float shift, float factor) {
        const float count = static_cast<float>(total);
        const float entropy_slope = static_cast<float>(-settings.entropy_coef) / count;
        PolicyMetrics sums;
        for (ptrdiff_t from = 0; from < rows.count; from += block_rows) {
            const Rows block = rows.part(from, std::min(block_rows, rows.count - from));
            const ptrdiff_t width = padded(block.count);
            const BlockOfActions actions = forward(data, block);
            for (ptrdiff_t j = 0; j < width; ++j) {
                const bool real = j < block.count;
                advantages_[j] = real ? (data.advantages[block[j]] - shift) * factor : 0;
                old_[j] = real && old_log_probs ? old_log_probs[block[j]] : log_prob_[j];
            }
            if (settings.clip_range > 0) {
                network_.kernels().clipped_surrogate(
                    log_prob_.data(), old_.data(), advantages_.data(), width,
                    static_cast<float>(settings.clip_range), 1 / count, surrogate_.data(),
                    divergence_.data(), clipped_.data(), slope_.data());
            } else {
                for (ptrdiff_t j = 0; j < width; ++j) {
                    surrogate_[j] = advantages_[j] * log_prob_[j];
                    slope_[j] = -advantages_[j] / count;
                }
            }
            for (ptrdiff_t j = 0; j < block.count; ++j) {
                sums.loss -= static_cast<double>(surrogate_[j]);
                sums.entropy += static_cast<double>(entropy_[j]);
                sums.divergence += static_cast<double>(divergence_[j]);
                sums.clipped += static_cast<double>(clipped_[j]);
            }
            Perceptron::clear_padding(slope_.data(), 1, block.count);
            head_.backward(network_.outputs(), width, block.count, actions, slope_.data(),
                           entropy_slope, network_.delta(), from == 0);
            network_.backward(from == 0);
        }
        return sums;
    }

  private:
    BlockOfActions forward(const Transitions& data, const Rows& block) {
        const ptrdiff_t width = padded(block.count), size = head_.components();
        gather(data.actor_inputs, network_.row(), block, network_.inputs());
        for (ptrdiff_t j = 0; j < width; ++j) {
            const ptrdiff_t row = block[std::min(j, block.count - 1)];
            for (ptrdiff_t i = 0; i < size; ++i) {
                if (head_.takes_choices()) {
                    choices_[static_cast<size_t>(i * width + j)] =
                        data.choices[static_cast<size_t>(row * size + i)];
                } else {
                    numbers_[i * width + j] = data.numbers[row * size + i];
                }
            }
        }
        const BlockOfActions actions{choices_.data(), numbers_.data()};
        network_.forward(block.count);
        head_.forward(network_.outputs(), width, actions, log_prob_.data(), entropy_.data());
        return actions;
    }

    Trainable& network_;
    Head& head_;
    Floats log_prob_, entropy_, old_, advantages_, surrogate_, divergence_, clipped_, slope_;
    Floats numbers_;
    std::vector<int32_t> choices_;
};

class ActorUpdate {
  public:
    // `other_head` is the same as `head`, for the second half, with its gradients in `room`.
    ActorUpdate(Trainable& network, Adam& adam, Head& head, Head& other_head,
                std::vector<Floats>& room)
        : adam_(adam),
          room_(room),
          other_network_(network.network(), gradients_in(room, network.network().layers().size())),
          first_(network, head),
          second_(other_network_, other_head),
          kernels_(network.kernels()) {}

    void log_probs(const Transitions& data, float* result, Pair& pair) {
        const std::array<Rows, 2> parts = halves({nullptr, 0, data.count});
        pair.run([&](int which) {
            (which == 0 ? first_ : second_).log_probs(data, parts[which], result);
        });
    }

    // The policy's loss; its gradient is left with the optimiser.
    PolicyMetrics loss(const Transitions& data, const float* old_log_probs, const Rows& rows,
                       const PolicySettings& settings, Pair& pair) {
        const auto [shift, factor] = standardization(data, rows, settings.normalize_advantages);
        const std::array<Rows, 2> parts = halves(rows);
        const auto sums_of = [&, shift = shift, factor = factor](int which) {
            return (which == 0 ? first_ : second_)
                .sums(data, old_log_probs, parts[which], settings, rows.count, shift, factor);
        };
        PolicyMetrics means;
        if (parts[1].count == 0) {
            means = sums_of(0);
        } else {
            std::array<PolicyMetrics, 2> sums;
            pair.run([&](int which) { sums[which] = sums_of(which); });
            add_gradients(adam_, room_, kernels_);
            means = sums[0];
            means += sums[1];
        }
        means /= static_cast<double>(rows.count);
        means.loss -= settings.entropy_coef * means.entropy;
        return means;
    }

  private:
    // What is subtracted from advantages, and what the difference is multiplied by, for mean 0 and
    // variance 1.
    static std::pair<float, float> standardization(const Transitions& data, const Rows& rows,
                                                   bool wanted) {
        if (!wanted) return {0.0f, 1.0f};
        double sum = 0, squares = 0;
        for (ptrdiff_t i = 0; i < rows.count; ++i) {
            sum += static_cast<double>(data.advantages[rows[i]]);
        }
        const double mean = sum / static_cast<double>(rows.count);
        for (ptrdiff_t i = 0; i < rows.count; ++i) {
            const double off = static_cast<double>(data.advantages[rows[i]]) - mean;
            squares += off * off;
        }
        const double freedom = static_cast<double>(std::max<ptrdiff_t>(rows.count - 1, 1));
        return {static_cast<float>(mean),
                static_cast<float>(1 / (std::sqrt(squares / freedom) + 1e-8))};
    }

    Adam& adam_;
    std::vector<Floats>& room_;
    Trainable other_network_;
    ActorPass first_, second_;
    const Kernels& kernels_;
};

struct OnPolicyMetrics {
    PolicyMetrics policy;
    double value_loss = 0;
};

class OnPolicyUpdate {
  public:
    // `other_head` is the same as `head`, with its gradients, if it has any, in `room`.
    OnPolicyUpdate(Trainable& actor, Adam& actor_adam, Head& head, Head& other_head,
                   std::vector<Floats>& room, Trainable& critic, Adam& critic_adam)
        : actor_adam_(actor_adam),
          critic_adam_(critic_adam),
          actor_(actor, actor_adam, head, other_head, room),
          critic_(critic, critic_adam) {}

    Transitions& data() { return data_; }

    // PPO's: what the ratios are to.
    void remember_policy(bool two_threads) {
        Pair pair(two_threads);
        old_log_probs_.reserve(data_.count);
        actor_.log_probs(data_, old_log_probs_.data(), pair);
    }

    // One pass over the rows in minibatches: PPO's epoch; means over the minibatches. In two
    // threads if `together`.
    std::optional<NotFinite> ppo_epoch(const int64_t* order, ptrdiff_t minibatch,
                                       const PolicySettings& policy, const StepSettings& actor,
                                       const StepSettings& critic, bool two_threads,
                                       OnPolicyMetrics& metrics) {
        const std::vector<Rows> parts = split({order, 0, data_.count}, minibatch);
        std::optional<Failure> values_failed;
        metrics = {};
        const auto learn_values = [&] {
            Pair alone(false);
            values_failed = each(parts, [&](const Rows& rows) {
                const double loss = critic_.loss(data_, rows, alone);
                metrics.value_loss += loss;
                return careful_step(critic_adam_, loss, critic, "critic");
            });
        };
        std::thread beside;
        if (two_threads) {
            beside = std::thread(learn_values);
        } else {
            learn_values();
        }
        std::optional<Failure> policy_failed;
        if (two_threads || !values_failed) {
            Pair alone(false);
            policy_failed = each(parts, [&](const Rows& rows) {
                const PolicyMetrics own =
                    actor_.loss(data_, old_log_probs_.data(), rows, policy, alone);
                metrics.policy += own;
                return careful_step(actor_adam_, own.loss, actor, "actor");
            });
        }
        if (two_threads) beside.join();
        metrics.policy /= static_cast<double>(parts.size());
        metrics.value_loss /= static_cast<double>(parts.size());
        return first_of(values_failed, policy_failed);
    }

    // Steps of the critic, then one of the actor, all from the whole batch: A2C's update.
    std::optional<NotFinite> a2c(int critic_updates, const PolicySettings& policy,
                                 const StepSettings& actor, const StepSettings& critic,
                                 bool two_threads, OnPolicyMetrics& metrics) {
        Pair pair(two_threads);
        const Rows all{nullptr, 0, data_.count};
        metrics = {};
        for (int i = 0; i < critic_updates; ++i) {
            const double loss = critic_.loss(data_, all, pair);
            metrics.value_loss += loss / critic_updates;
            if (auto failed = careful_step(critic_adam_, loss, critic, "critic")) {
                return failed;
            }
        }
        metrics.policy = actor_.loss(data_, nullptr, all, policy, pair);
        return careful_step(actor_adam_, metrics.policy.loss, actor, "actor");
    }

  private:
    struct Failure {
        size_t minibatch;
        NotFinite found;
    };

    template <class Step>
    static std::optional<Failure> each(const std::vector<Rows>& parts, const Step& step) {
        for (size_t i = 0; i < parts.size(); ++i) {
            if (auto found = step(parts[i])) return Failure{i, *found};
        }
        return std::nullopt;
    }

    // The one that came first had both learnt in turn, the critic before the actor.
    static std::optional<NotFinite> first_of(const std::optional<Failure>& values,
                                             const std::optional<Failure>& policy) {
        if (values && (!policy || values->minibatch <= policy->minibatch)) return values->found;
        return policy ? std::optional(policy->found) : std::nullopt;
    }

    Adam& actor_adam_;
    Adam& critic_adam_;
    ActorUpdate actor_;
    CriticUpdate critic_;
    Transitions data_;
    Floats old_log_probs_;
};

}  // namespace envfleet::learner
