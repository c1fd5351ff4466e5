// The joint between a learner and an engine: a perceptron whose outputs become actions, row by row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/rollout.h"
#include "learner/perceptron.h"

namespace envfleet {

// What a perceptron's outputs are: logits of one or more choices, logits of switches, the means of
// Gaussians; or means, then log deviations, of Gaussians that are squashed by tanh.
enum class Head { categorical, bernoulli, normal, squashed };

// How a policy's actions are mapped onto an environment's bounds: as wrappers.ActionMap does.
struct ActionBounds {
    std::vector<double> least, most, centre, scale, low, high;

    double operator()(double value, size_t place) const {
        const double units = std::min(std::max(value, least[place]), most[place]);
        const double scaled = units * scale[place] + centre[place];
        return std::min(std::max(scaled, low[place]), high[place]);
    }
};

struct PolicySetup {
    Head head;
    std::vector<int64_t> sizes, starts;  // of choices: how many each is among, and the first one
    const float* log_deviations;         // of a normal head: as many as there are outputs
    bool sees_doubles;                   // else floats
    std::optional<ActionBounds> bounds;  // of actions that are floats
    bool takes_doubles;                  // whether environments do, where actions are floats
    // While learning, a number that is not finite is seen as 0: what came of it is not learnt from.
    // While judging, a row whose outputs are not finite has no action.
    bool judges;
};

// Noise decides among actions: Gumbel noise for choices, logistic noise for switches, standard
// normal noise for the others, [steps][rows][outputs]. Without it the likeliest action is chosen.
struct PolicyNoise {
    const float* numbers;
    size_t steps, rows;
};

class PerceptronPolicy : public RowPolicy {
  public:
    PerceptronPolicy(const learner::Perceptron& network, PolicySetup setup, PolicyNoise noise)
        : network_(network),
          setup_(std::move(setup)),
          noise_(noise),
          normalization_(network.normalization()) {
        refresh();
    }

    // Takes over statistics and deviations, which do not move within a rollout.
    void refresh() {
        normalization_ = network_.normalization();
        if (setup_.head != Head::normal) return;
        deviations_.resize(outputs());
        for (size_t i = 0; i < outputs(); ++i) {
            deviations_[i] = std::exp(setup_.log_deviations[i]);
        }
    }

    Sizes sizes() const override {
        const size_t seen = setup_.sees_doubles ? sizeof(double) : sizeof(float);
        const size_t number = setup_.head == Head::categorical ? sizeof(int64_t)
                              : setup_.head == Head::bernoulli ? sizeof(int8_t)
                                                               : sizeof(float);
        const bool is_wider = number == sizeof(float) && setup_.takes_doubles;
        return {static_cast<size_t>(network_.inputs()) * seen, parts() * number,
                parts() * (is_wider ? sizeof(double) : number), noise_.steps, noise_.rows};
    }

    std::unique_ptr<Room> room() const override {
        return std::make_unique<BlockRoom>(network_.activations());
    }

    bool act(Room& room, size_t step, size_t first, size_t last, const std::byte* observations,
             std::byte* actions, std::byte* taken) const override {
        constexpr auto most = static_cast<size_t>(learner::block_rows);
        learner::Activations& layers = static_cast<BlockRoom&>(room).layers;
        bool all = true;
        for (size_t row = first; row < last; row += most) {
            const size_t count = std::min(most, last - row);
            const ptrdiff_t width = learner::padded(static_cast<ptrdiff_t>(count));
            setup_.sees_doubles ? look<double>(observations, row, count, layers.layer(0))
                                : look<float>(observations, row, count, layers.layer(0));
            learner::Perceptron::clear_padding(layers.layer(0), network_.inputs(),
                                               static_cast<ptrdiff_t>(count));
            network_.forward_block(layers, width);
            for (size_t i = 0; i < count; ++i) {
                const Outputs found{layers.outputs() + i, width, noise_of(step, row + i)};
                all = decide(found, row + i, actions, taken) && all;
            }
        }
        return all;
    }

  private:
    struct BlockRoom final : Room {
        explicit BlockRoom(learner::Activations room) : layers(std::move(room)) {}
        learner::Activations layers;
    };

    // One row's outputs, and its noise or nothing.
    struct Outputs {
        const float* first;
        ptrdiff_t apart;
        const float* noise;

        float operator[](size_t i) const { return first[static_cast<ptrdiff_t>(i) * apart]; }
        float noisy(size_t i) const {
            return noise == nullptr ? (*this)[i] : (*this)[i] + noise[i];
        }
    };

    size_t outputs() const { return static_cast<size_t>(network_.outputs()); }
    // Numbers in an action.
    size_t parts() const {
        if (setup_.head == Head::categorical) return setup_.sizes.size();
        return setup_.head == Head::squashed ? outputs() / 2 : outputs();
    }
    const float* noise_of(size_t step, size_t row) const {
        if (noise_.numbers == nullptr) return nullptr;
        const size_t numbers = setup_.head == Head::squashed ? parts() : outputs();
        return noise_.numbers + (step * noise_.rows + row) * numbers;
    }

    // Observations as the network's inputs, [inputs][padded(count)].
    template <class Number>
    void look(const std::byte* observations, size_t first, size_t count, float* to) const {
        const auto features = static_cast<size_t>(network_.inputs());
        const ptrdiff_t width = learner::padded(static_cast<ptrdiff_t>(count));
        const auto* rows = reinterpret_cast<const Number*>(observations) + first * features;
        std::vector<Number> repaired;
        for (size_t i = 0; i < count; ++i) {
            const Number* row = rows + i * features;
            if (!setup_.judges && !std::all_of(row, row + features, is_fine<Number>)) {
                repaired.assign(row, row + features);
                for (Number& number : repaired) number = is_fine(number) ? number : Number{0};
                row = repaired.data();
            }
            normalization_.apply(row, to + i, width);
        }
    }

    // What float32 can hold. NaN is never less than anything.
    template <class Number>
    static bool is_fine(Number number) {
        return std::abs(number) <= static_cast<Number>(std::numeric_limits<float>::max());
    }

    bool decide(const Outputs& found, size_t row, std::byte* actions, std::byte* taken) const {
        switch (setup_.head) {
            case Head::categorical:
                return choose(found, row, actions, taken);
            case Head::bernoulli:
                return throw_switches(found, row, actions, taken);
            default:
                return move(found, row, actions, taken);
        }
    }

    bool choose(const Outputs& found, size_t row, std::byte* actions, std::byte* taken) const {
        auto* kept = reinterpret_cast<int64_t*>(actions) + row * parts();
        auto* played = reinterpret_cast<int64_t*>(taken) + row * parts();
        size_t begin = 0;
        for (size_t part = 0; part < parts(); ++part) {
            const auto size = static_cast<size_t>(setup_.sizes[part]);
            size_t best = 0;
            for (size_t i = 1; i < size; ++i) {
                const float value = found.noisy(begin + i), before = found.noisy(begin + best);
                // The first NaN counts as the largest, as NumPy has it.
                if (value > before || (std::isnan(value) && !std::isnan(before))) best = i;
            }
            if (setup_.judges && !std::isfinite(found[begin + best])) return false;
            kept[part] = played[part] = setup_.starts[part] + static_cast<int64_t>(best);
            begin += size;
        }
        return true;
    }

    bool throw_switches(const Outputs& found, size_t row, std::byte* actions,
                        std::byte* taken) const {
        auto* kept = reinterpret_cast<int8_t*>(actions) + row * parts();
        auto* played = reinterpret_cast<int8_t*>(taken) + row * parts();
        for (size_t i = 0; i < parts(); ++i) {
            if (setup_.judges && !std::isfinite(found[i])) return false;
            kept[i] = played[i] = found[i] > (found.noise == nullptr ? 0.0f : found.noise[i]);
        }
        return true;
    }

    bool move(const Outputs& found, size_t row, std::byte* actions, std::byte* taken) const {
        auto* kept = reinterpret_cast<float*>(actions) + row * parts();
        for (size_t i = 0; i < parts(); ++i) {
            kept[i] = setup_.head == Head::normal ? drawn(found, i) : squashed(found, i);
            if (!std::isfinite(kept[i])) return false;
            const double bounded = setup_.bounds ? (*setup_.bounds)(kept[i], i) : kept[i];
            if (setup_.takes_doubles) {
                reinterpret_cast<double*>(taken)[row * parts() + i] = bounded;
            } else {
                reinterpret_cast<float*>(taken)[row * parts() + i] = static_cast<float>(bounded);
            }
        }
        return true;
    }

    float drawn(const Outputs& found, size_t i) const {
        return found.noise == nullptr ? found[i] : found[i] + deviations_[i] * found.noise[i];
    }
    float squashed(const Outputs& found, size_t i) const {
        if (found.noise == nullptr) return std::tanh(found[i]);
        const float log_deviation = std::clamp(found[parts() + i], -20.0f, 2.0f);
        return std::tanh(found[i] + std::exp(log_deviation) * found.noise[i]);
    }

    const learner::Perceptron& network_;
    const PolicySetup setup_;
    const PolicyNoise noise_;
    learner::Normalization normalization_;
    std::vector<float> deviations_;
};

}  // namespace envfleet
