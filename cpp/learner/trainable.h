// A perceptron that learns: its gradient, and Adam's steps on torch's own parameters and state.
//
//     zero_gradient()
//     for each block of a batch:  forward(rows, count)  ──▶  the loss fills delta()  ──▶ backward()
//     gradient_norm()  ──▶  step()
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "learner/memory.h"
#include "learner/perceptron.h"

namespace envfleet::learner {

// A tensor of torch's and what torch.optim.Adam(fused=True) remembers about it.
struct Parameter {
    float* value;
    float* mean;    // exp_avg
    float* square;  // exp_avg_sq
    float* step;    // one number: how many steps were taken
    ptrdiff_t count;
};

struct AdamSettings {
    double rate, beta1, beta2, epsilon;
};

// Parameters that take their steps together, each with room for its gradient.
class Adam {
  public:
    Adam(std::vector<Parameter> parameters, const Kernels& kernels)
        : parameters_(std::move(parameters)), kernels_(&kernels) {
        for (const Parameter& each : parameters_) gradients_.emplace_back(each.count);
    }

    size_t size() const { return parameters_.size(); }
    const Parameter& parameter(size_t index) const { return parameters_[index]; }
    float* gradient(size_t index) { return gradients_[index].data(); }
    const float* gradient(size_t index) const { return gradients_[index].data(); }

    // The length of all gradients together; not finite if one of them is not.
    double gradient_norm() const {
        double sum = 0;
        for (const Floats& each : gradients_) {
            sum += static_cast<double>(kernels_->squared_norm(each.data(), each.size()));
        }
        return std::sqrt(sum);
    }

    // One step of all parameters, their gradients multiplied by `scale`.
    void step(const AdamSettings& settings, double scale) {
        for (size_t i = 0; i < parameters_.size(); ++i) {
            const Parameter& each = parameters_[i];
            const double steps = static_cast<double>(*each.step += 1);
            const double first = 1 - std::pow(settings.beta1, steps);
            const double second = 1 - std::pow(settings.beta2, steps);
            kernels_->adam(each.value, each.mean, each.square, gradients_[i].data(), each.count,
                           {.beta1 = static_cast<float>(settings.beta1),
                            .beta2 = static_cast<float>(settings.beta2),
                            .step_size = static_cast<float>(settings.rate / first),
                            .root_correction = static_cast<float>(std::sqrt(second)),
                            .epsilon = static_cast<float>(settings.epsilon),
                            .gradient_scale = static_cast<float>(scale)});
        }
    }

  private:
    std::vector<Parameter> parameters_;
    std::vector<Floats> gradients_;
    const Kernels* kernels_;
};

// What the gradient is multiplied by so that it is no longer than `longest`; 0: any length will do.
inline double shortening(double norm, double longest) {
    return longest > 0 ? std::min(1.0, longest / (norm + 1e-6)) : 1.0;
}

class Trainable {
  public:
    // `adam` holds weight and bias of every layer, in their order, and then whatever else there is.
    Trainable(const Perceptron& network, Adam adam)
        : network_(network),
          adam_(std::move(adam)),
          room_(network.activations()),
          rows_(block_rows * padded(network.inputs())) {
        ptrdiff_t widest = network.outputs(), inputs = 0;
        for (const Layer& layer : network.layers()) {
            widest = std::max({widest, layer.inputs, layer.outputs});
            inputs = std::max(inputs, layer.inputs);
        }
        delta_ = Floats(widest * block_rows);
        next_delta_ = Floats(widest * block_rows);
        transposed_ = Floats(block_rows * padded(inputs));
    }

    const Perceptron& network() const { return network_; }
    Adam& adam() { return adam_; }
    const Kernels& kernels() const { return network_.kernels(); }
    // How far apart the rows of inputs() are.
    ptrdiff_t row() const { return padded(network_.inputs()); }
    // Where up to block_rows rows of inputs are put before forward(): [count][row()].
    float* inputs() { return rows_.data(); }
    float* outputs() { return room_.outputs(); }
    float* delta() { return delta_.data(); }
    // d loss / d inputs, [inputs][width], after backward() was asked for it.
    float* input_delta() { return delta_.data(); }

    // outputs() [outputs][padded(count)] of the first `count` rows of inputs().
    void forward(ptrdiff_t count) {
        count_ = count;
        width_ = padded(count);
        kernels().transpose(rows_.data(), row(), count, network_.inputs(), room_.layer(0), width_);
        Perceptron::clear_padding(room_.layer(0), network_.inputs(), count);
        network_.forward_block(room_, width_);
    }

    // The gradient of this block, from delta() = d loss / d outputs, whose padding must be 0; added
    // to that of the blocks before unless it is the first.
    void backward(bool first) {
        for (size_t i = network_.layers().size(); i-- > 0;) {
            layer_gradient(i, first);
            if (i > 0) back_through(i);
        }
    }

    // d loss / d inputs into input_delta(), from delta(); no gradient of the parameters.
    void backward_to_inputs() {
        for (size_t i = network_.layers().size(); i-- > 0;) back_through(i);
    }

  private:
    void layer_gradient(size_t index, bool first) {
        const Layer& layer = network_.layers()[index];
        const float* inputs = rows_.data();
        ptrdiff_t inputs_row = row();
        if (index > 0) {
            inputs = transposed_.data();
            inputs_row = padded(layer.inputs);
            kernels().transpose(room_.layer(index), width_, layer.inputs, count_,
                                transposed_.data(), inputs_row);
        }
        kernels().multiply({.a = delta_.data(),
                            .a_row = width_,
                            .a_column = 1,
                            .b = inputs,
                            .b_row = inputs_row,
                            .c = adam_.gradient(2 * index),
                            .c_row = layer.inputs,
                            .rows = layer.outputs,
                            .columns = layer.inputs,
                            .depth = count_,
                            .accumulate = !first});
        kernels().row_sums(delta_.data(), width_, layer.outputs, width_,
                           adam_.gradient(2 * index + 1), !first);
    }

    void back_through(size_t index) {
        const Layer& layer = network_.layers()[index];
        kernels().multiply({.a = layer.weight,
                            .a_row = 1,
                            .a_column = layer.inputs,
                            .b = delta_.data(),
                            .b_row = width_,
                            .c = next_delta_.data(),
                            .c_row = width_,
                            .rows = layer.inputs,
                            .columns = width_,
                            .depth = layer.outputs});
        if (index > 0) {
            (network_.activation() == Activation::tanh ? kernels().tanh_slope
                                                       : kernels().relu_slope)(
                next_delta_.data(), room_.layer(index), layer.inputs * width_);
        }
        std::swap(delta_, next_delta_);
    }

    Perceptron network_;
    Adam adam_;
    Activations room_;
    Floats rows_, delta_, next_delta_, transposed_;
    ptrdiff_t count_ = 0, width_ = 0;
};

}  // namespace envfleet::learner
