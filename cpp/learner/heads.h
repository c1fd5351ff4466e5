// From a network's outputs to log-probabilities and entropies of actions, and back again: the
// distributions of envfleet.train.networks.distributions, a block of samples at a time.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "learner/memory.h"
#include "learner/perceptron.h"

namespace envfleet::learner {

// A block of actions, [components][width]: numbers of choices, or floats.
struct BlockOfActions {
    const int32_t* choices;
    const float* numbers;
};

class Head {
  public:
    virtual ~Head() = default;
    // How many numbers an action has, and whether they are choices.
    virtual ptrdiff_t components() const = 0;
    virtual bool takes_choices() const = 0;
    // log_prob[width] and entropy[width] for outputs[..][width], which may be changed.
    virtual void forward(float* outputs, ptrdiff_t width, const BlockOfActions& actions,
                         float* log_prob, float* entropy) = 0;
    // d loss / d outputs into `delta`, after forward(), given d loss / d log_prob[width] and the
    // loss's slope in each entropy, which is the same for all `count` samples. The padding of
    // log_prob_slope is 0; that of delta becomes 0.
    virtual void backward(const float* outputs, ptrdiff_t width, ptrdiff_t count,
                          const BlockOfActions& actions, const float* log_prob_slope,
                          float entropy_slope, float* delta, bool first) = 0;
};

// Independent choices, each among its own number of actions: outputs are the logits of all.
class CategoricalHead final : public Head {
  public:
    CategoricalHead(std::vector<ptrdiff_t> sizes, const Kernels& kernels)
        : sizes_(std::move(sizes)),
          kernels_(&kernels),
          entropies_(static_cast<ptrdiff_t>(sizes_.size()) * block_rows) {}

    ptrdiff_t components() const override { return static_cast<ptrdiff_t>(sizes_.size()); }
    bool takes_choices() const override { return true; }

    void forward(float* outputs, ptrdiff_t width, const BlockOfActions& actions, float* log_prob,
                 float* entropy) override {
        for (ptrdiff_t j = 0; j < width; ++j) log_prob[j] = entropy[j] = 0;
        for (ptrdiff_t part = 0; part < components(); ++part) {
            float* own = entropies_.data() + part * width;
            kernels_->choice_forward(outputs, sizes_[part], width, actions.choices + part * width,
                                     log_prob, own);
            for (ptrdiff_t j = 0; j < width; ++j) entropy[j] += own[j];
            outputs += sizes_[part] * width;
        }
    }

    void backward(const float* outputs, ptrdiff_t width, ptrdiff_t count,
                  const BlockOfActions& actions, const float* log_prob_slope, float entropy_slope,
                  float* delta, bool) override {
        for (ptrdiff_t part = 0; part < components(); ++part) {
            kernels_->choice_backward(outputs, sizes_[part], width, actions.choices + part * width,
                                      log_prob_slope, entropies_.data() + part * width,
                                      entropy_slope, delta);
            Perceptron::clear_padding(delta, sizes_[part], count);
            outputs += sizes_[part] * width;
            delta += sizes_[part] * width;
        }
    }

  private:
    std::vector<ptrdiff_t> sizes_;
    const Kernels* kernels_;
    Floats entropies_;
};

// Independent switches, each 0 or 1: outputs are their logits.
class BernoulliHead final : public Head {
  public:
    BernoulliHead(ptrdiff_t switches, const Kernels& kernels)
        : switches_(switches), kernels_(&kernels) {}

    ptrdiff_t components() const override { return switches_; }
    bool takes_choices() const override { return false; }

    void forward(float* outputs, ptrdiff_t width, const BlockOfActions& actions, float* log_prob,
                 float* entropy) override {
        kernels_->switch_forward(outputs, switches_, width, actions.numbers, log_prob, entropy);
    }

    void backward(const float* outputs, ptrdiff_t width, ptrdiff_t count,
                  const BlockOfActions& actions, const float* log_prob_slope, float entropy_slope,
                  float* delta, bool) override {
        kernels_->switch_backward(outputs, switches_, width, actions.numbers, log_prob_slope,
                                  entropy_slope, delta);
        Perceptron::clear_padding(delta, switches_, count);
    }

  private:
    ptrdiff_t switches_;
    const Kernels* kernels_;
};

// Independent Gaussians: outputs are their means; the log deviations are parameters.
class NormalHead final : public Head {
  public:
    NormalHead(ptrdiff_t size, const float* log_std, float* log_std_gradient,
               const Kernels& kernels)
        : size_(size),
          log_std_(log_std),
          gradient_(log_std_gradient),
          kernels_(&kernels),
          scaled_(size * block_rows) {}

    ptrdiff_t components() const override { return size_; }
    bool takes_choices() const override { return false; }

    void forward(float* outputs, ptrdiff_t width, const BlockOfActions& actions, float* log_prob,
                 float* entropy) override {
        const float log_sqrt_2_pi = 0.918938533204672742f;
        float total = 0;
        for (ptrdiff_t i = 0; i < size_; ++i) total += log_std_[i] + 0.5f + log_sqrt_2_pi;
        for (ptrdiff_t j = 0; j < width; ++j) log_prob[j] = 0, entropy[j] = total;
        for (ptrdiff_t i = 0; i < size_; ++i) {
            kernels_->normal_forward(outputs + i * width, width, actions.numbers + i * width,
                                     std::exp(-log_std_[i]), log_std_[i] + log_sqrt_2_pi,
                                     scaled_.data() + i * width, log_prob);
        }
    }

    void backward(const float*, ptrdiff_t width, ptrdiff_t count, const BlockOfActions&,
                  const float* log_prob_slope, float entropy_slope, float* delta,
                  bool first) override {
        for (ptrdiff_t i = 0; i < size_; ++i) {
            const float* scaled = scaled_.data() + i * width;
            const float inverse = std::exp(-log_std_[i]);
            float sum = entropy_slope * static_cast<float>(count);
            for (ptrdiff_t j = 0; j < width; ++j) {
                delta[i * width + j] = log_prob_slope[j] * scaled[j] * inverse;
            }
            for (ptrdiff_t j = 0; j < count; ++j) {
                sum += log_prob_slope[j] * (scaled[j] * scaled[j] - 1);
            }
            gradient_[i] = (first ? 0 : gradient_[i]) + sum;
        }
        Perceptron::clear_padding(delta, size_, count);
    }

  private:
    ptrdiff_t size_;
    const float* log_std_;
    float* gradient_;
    const Kernels* kernels_;
    Floats scaled_;  // (action - mean) / deviation
};

}  // namespace envfleet::learner
